"""Shipper of this box's owner: the daemon's, and the command line's.

Owns: which folders and which way to the nodes it uses. Must not know what is copied.
"""

from __future__ import annotations

from collections.abc import Callable

from sparkdash import paths
from sparkdash.host.podman.argv import PODMAN
from sparkdash.nodes.shipping.shipper import NodeShipper, ShippingFolders
from sparkdash.nodes.shipping.ssh_access import SshAccess
from sparkdash.settings import Settings


def make_shipper(settings: Settings, fast_address: Callable[[str], str | None]) -> NodeShipper:
    """Make a shipper; `fast_address` returns a node's address on the fast link, None while unknown."""
    folders = ShippingFolders(
        hf_home=settings.hf_home.expanduser(),
        staging=settings.cache_dir.expanduser() / "copies",
        sums=paths.state_dir() / "copied-files.json",
    )
    return NodeShipper(SshAccess(fast_address), folders, images=settings.runtime == PODMAN)
