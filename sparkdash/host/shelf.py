"""What of each profile is on this box: its image and its weights, for lists and for `pull --offline`.

Owns: asking the runtime once for all images, and looking at each model once. Must not know how either is fetched.
Rule: a list never waits long: a runtime that is absent or silent leaves the images unknown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from sparkdash.domain.profile import ModelRef, ProfileSummary
from sparkdash.errors import HostError
from sparkdash.host.hub.local_weights import Presence, find_weights, sum_presence
from sparkdash.host.runtime import Runtime


@dataclass(frozen=True, slots=True)
class Image:
    """A profile's image. `size` is in bytes."""

    name: str
    here: bool
    size: int | None = None


@dataclass(frozen=True, slots=True)
class ProfileStock:
    """One profile's. None: it needs none, or it is not known."""

    image: Image | None
    weights: Presence | None


async def stock_of(profiles: Iterable[ProfileSummary], runtime: Runtime, hf_home: Path) -> dict[str, ProfileStock]:
    """By profile. One call of the runtime, and a look at each model's folder, in a thread: `hf_home` may be a slow disk."""
    listed = list(profiles)
    found = await image_presence(runtime, [profile.image for profile in listed if profile.image])
    weights = await asyncio.to_thread(_weights, {ref for profile in listed for ref in profile.weights}, hf_home)
    return {
        one.name: ProfileStock(found.get(one.image or ""), sum_presence(weights[ref] for ref in one.weights))
        for one in listed
    }


async def image_presence(runtime: Runtime, names: Iterable[str]) -> Mapping[str, Image]:
    """What is known of these images; nothing when the runtime needs none or does not answer."""
    wanted = sorted(set(names))
    if not runtime.containerised:
        return {}
    try:
        sizes = await runtime.images(wanted)
    except HostError:
        return {}
    return {name: Image(name, name in sizes, sizes.get(name)) for name in wanted}


def _weights(refs: Iterable[ModelRef], hf_home: Path) -> dict[ModelRef, Presence]:
    return {ref: find_weights(ref, hf_home) for ref in refs}
