"""Images and weights of profiles on this box, for lists and for `pull --offline`.

Rule: a list never waits long, so a silent runtime leaves the images unknown. A runtime that is not installed has none.
"""

import asyncio
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from sparkdash.domain.profile import ModelRef, ProfileSummary
from sparkdash.errors import HostError
from sparkdash.host.local_weights import Presence, find_weights, sum_presence
from sparkdash.host.runtime import Runtime


@dataclass(frozen=True, slots=True)
class Image:
    """Image of a profile, with its size in bytes."""

    name: str
    here: bool
    size: int | None = None


@dataclass(frozen=True, slots=True)
class ProfileStock:
    """Image and weights of one profile; None where not needed or unknown."""

    image: Image | None
    weights: Presence | None


async def stock_of(profiles: Iterable[ProfileSummary], runtime: Runtime, hf_home: Path) -> dict[str, ProfileStock]:
    """Find images and weights by profile; folders are read in a thread, as `hf_home` may be a slow disk."""
    listed = list(profiles)
    found = await image_presence(runtime, [profile.image for profile in listed if profile.image])
    weights = await asyncio.to_thread(
        _weights, {ref for profile in listed for ref in profile.weights}, hf_home, runtime
    )
    return {
        one.name: ProfileStock(found.get(one.image or ""), sum_presence(weights[ref] for ref in one.weights))
        for one in listed
    }


async def image_presence(runtime: Runtime, names: Iterable[str]) -> Mapping[str, Image]:
    """Find these images; empty if the runtime needs none or does not answer."""
    wanted = sorted(set(names))
    if not runtime.containerised:
        return {}
    try:
        sizes = await runtime.images(wanted)
    except HostError:
        if shutil.which(runtime.name) is not None:
            return {}
        sizes = {}
    return {name: Image(name, name in sizes, sizes.get(name)) for name in wanted}


def _weights(refs: Iterable[ModelRef], hf_home: Path, runtime: Runtime) -> dict[ModelRef, Presence]:
    return {ref: find_weights(ref, hf_home, contained=runtime.containerised) for ref in refs}
