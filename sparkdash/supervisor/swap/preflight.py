"""Preflight: faults of a start that can be known before anything is stopped for it.

Owns: the looks at the image, at local weights and at free memory, and their refusals. Must not know phases.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from pathlib import Path

from sparkdash.domain.engine import Engine
from sparkdash.domain.images.availability import how_to_get, nearest_words
from sparkdash.domain.node import LOCAL
from sparkdash.domain.profile import Profile
from sparkdash.engines.known_flags import KnownFlags
from sparkdash.errors import HostError
from sparkdash.supervisor.memory import large_blocks
from sparkdash.supervisor.tools import Tools


async def check_start(
    tools: Tools, target: Profile, nodes: Collection[str], evict: Iterable[Engine]
) -> KnownFlags | None:
    """Check that nothing speaks against a start on these nodes; return the known flags of the target's program.

    Raises:
        HostError: its image or weights are not on this box, though it runs here.
        AdmissionError: `fragmented`.
    """
    image, runtime = target.image, tools.runtime
    image_id = await runtime.image_id(image) if runtime.containerised and image is not None else ""
    if LOCAL in nodes:
        await _check_here(tools, target, image_id, evict)
    return None if image_id is None else await tools.flags.known(target, image_id)


async def _check_here(tools: Tools, target: Profile, image_id: str | None, evict: Iterable[Engine]) -> None:
    """Check what a start needs of this box."""
    image, runtime = target.image, tools.runtime
    if image_id is None:
        raise HostError(
            f"The image {image} of {target.name} is not on this box.",
            code="image_missing",
            hint=how_to_get(target),
        )
    for path in weights_paths(target, containerised=runtime.containerised):
        if await asyncio.to_thread(_is_gone, path):
            raise HostError(
                f"The weights of {target.name} are not on this box: there is no {path}.",
                code="weights_missing",
                hint=f"Put them there, or correct the path in the profile. {nearest_words(target)}".rstrip(),
            )
    await large_blocks.check_before_stop(tools, target, [engine for engine in evict if LOCAL in engine.nodes])


def weights_paths(profile: Profile, *, containerised: bool) -> list[Path]:
    """Return the paths at which this box must have the profile's models."""
    models = profile.weights if containerised else profile.used_models
    return [path for ref in models if ref.path and (path := Path(ref.path)).is_absolute()]


def _is_gone(path: Path) -> bool:
    """Certainly not there: what cannot be looked at may be."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False
