"""Images and weights of profiles on this box: `host`'s stock functions for commands without an event loop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable, Mapping

from sparkdash.domain.profile import ProfileSummary
from sparkdash.domain.state import Snapshot
from sparkdash.host import shelf
from sparkdash.host.runtime import Runtime
from sparkdash.host.shelf import Image, ProfileStock
from sparkdash.settings import Settings


def on_this_box(world: Snapshot | None) -> bool:
    """Whether the daemon runs on this box; one reached through `ssh -L` has another box's files."""
    return world is None or world.daemon.host == socket.gethostname()


def local_stock(profiles: Iterable[ProfileSummary], runtime: Runtime, known: Settings) -> dict[str, ProfileStock]:
    """Return the images and weights of each profile, by name."""
    return asyncio.run(shelf.stock_of(profiles, runtime, known.hf_home.expanduser()))


def local_images(runtime: Runtime, names: Iterable[str]) -> Mapping[str, Image]:
    """Return which of the named images are on this box."""
    return asyncio.run(shelf.image_presence(runtime, names))
