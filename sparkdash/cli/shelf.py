"""What of each profile is on this box: its image and its weights, for lists and for `pull --offline`.

Owns: asking the runtime once for all images, and looking at each model once. Must not know how either is fetched.
Rule: a list never waits long: a runtime that is absent or silent leaves the images unknown.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sparkdash.domain.profile import ModelRef, ProfileSummary
from sparkdash.domain.state import Snapshot
from sparkdash.errors import HostError
from sparkdash.host.runtime import Runtime
from sparkdash.host.weights_here import Presence, look, summed
from sparkdash.settings import Settings
from sparkdash.units import DASH, size

MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Image:
    """A profile's image. `size` is in bytes."""

    name: str
    here: bool
    size: int | None = None


@dataclass(frozen=True, slots=True)
class Stock:
    """One profile's. None: it needs none, or it is not known."""

    image: Image | None
    weights: Presence | None


def on_this_box(world: Snapshot | None) -> bool:
    """Does the daemon run here? One reached through `ssh -L` has another box's images and weights."""
    return world is None or world.daemon.host == socket.gethostname()


def stock(profiles: Iterable[ProfileSummary], runtime: Runtime, known: Settings) -> dict[str, Stock]:
    """By profile. One call of the runtime, and a look at each model's folder."""
    listed = list(profiles)
    images = here(runtime, [profile.image for profile in listed if profile.image])
    found: dict[ModelRef, Presence] = {}
    for ref in (ref for profile in listed for ref in profile.weights):
        if ref not in found:
            found[ref] = look(ref, known.hf_home.expanduser())
    return {one.name: Stock(images.get(one.image or ""), summed(found[ref] for ref in one.weights)) for one in listed}


def here(runtime: Runtime, names: Iterable[str]) -> Mapping[str, Image]:
    """What is known of these images; nothing when the runtime needs none or does not answer."""
    wanted = sorted(set(names))
    if not runtime.containerised:
        return {}
    try:
        sizes = asyncio.run(runtime.images(wanted))
    except HostError:
        return {}
    return {name: Image(name, name in sizes, sizes.get(name)) for name in wanted}


def cell(one: Image | Presence | None) -> str:
    """For a column: its size, "missing", or "-"."""
    if one is None:
        return DASH
    return size(one.size) if one.here else MISSING
