"""Images and weights of profiles on this box: `host`'s stock functions for commands without an event loop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable, Mapping

from sparkdash.domain.images.origin import image_origin
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
    """Whether the daemon runs on this box; one reached through `ssh -L` has another box's files."""
    return world is None or world.daemon.host == socket.gethostname()


def local_stock(profiles: Iterable[ProfileSummary], runtime: Runtime, known: Settings) -> dict[str, ProfileStock]:
    """Return the images and weights of each profile, by name."""
    return asyncio.run(shelf.stock_of(profiles, runtime, known.hf_home.expanduser()))


def local_images(runtime: Runtime, names: Iterable[str]) -> Mapping[str, Image]:
    """Return which of the named images are on this box."""
    return asyncio.run(shelf.image_presence(runtime, names))


def image_cell(profile: ProfileSummary, image: Image | None) -> str:
    """Format a table cell: the image's size, else the way to it ("to pull", "to build", "no source"), or "-"."""
    if image is None or profile.image is None:
        return DASH
    return size(image.size) if image.here else image_origin(profile.image, profile.build).value


def size_or_missing(one: Presence | None) -> str:
    """Format a table cell: size, "missing", or "-"."""
    if one is None:
        return DASH
    return size(one.size) if one.here else MISSING
