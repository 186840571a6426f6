"""What of each profile is on this box, on the command line: `host/shelf`, for commands that have no loop of their own."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable, Mapping

from sparkdash.domain.profile import ProfileSummary
from sparkdash.domain.state import Snapshot
from sparkdash.host import shelf
from sparkdash.host.hub.local_weights import Presence
from sparkdash.host.runtime import Runtime
from sparkdash.host.shelf import Image, ProfileStock
from sparkdash.settings import Settings
from sparkdash.units import DASH, size

MISSING = "missing"


def on_this_box(world: Snapshot | None) -> bool:
    """Does the daemon run here? One reached through `ssh -L` has another box's images and weights."""
    return world is None or world.daemon.host == socket.gethostname()


def local_stock(profiles: Iterable[ProfileSummary], runtime: Runtime, known: Settings) -> dict[str, ProfileStock]:
    """See `host.shelf.stock`."""
    return asyncio.run(shelf.stock(profiles, runtime, known.hf_home.expanduser()))


def local_images(runtime: Runtime, names: Iterable[str]) -> Mapping[str, Image]:
    """See `host.shelf.images`."""
    return asyncio.run(shelf.images(runtime, names))


def size_or_missing(one: Image | Presence | None) -> str:
    """For a column: its size, "missing", or "-"."""
    if one is None:
        return DASH
    return size(one.size) if one.here else MISSING
