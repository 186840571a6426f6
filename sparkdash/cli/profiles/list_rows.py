"""Rows of `profiles list`: one line for each profile, with a state that says what can be done.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

from sparkdash.cli.profiles.image_words import ProfileImage, image_cell
from sparkdash.domain.images import ImageState
from sparkdash.domain.profile import EngineKind, ProfileSummary
from sparkdash.domain.state import Snapshot
from sparkdash.host.shelf import ProfileStock
from sparkdash.units import DASH, gib, number, size

HEAD = ("profile", "engine", "needs", "tok/s", "drafts", "image", "weights", "state")
ALIGN = "<<>><>><"
LEAST = ("drafts", "engine", "needs", "tok/s")
"""Columns that a narrow terminal omits, in this order."""


def list_row(
    summary: ProfileSummary,
    world: Snapshot | None,
    here: ProfileStock | None,
    image: ProfileImage | None,
    runtime: str,
) -> tuple[str, ...]:
    """Format the row of a profile; `world` is None without a daemon, `runtime` the word for podman or docker."""
    image_bytes = here.image.size if here is not None and here.image is not None else None
    return (
        summary.name,
        summary.engine.value,
        gib(summary.needs_bytes, 0),
        number(summary.published_decode_tok_s, 1),
        summary.speculation or DASH,
        image_cell(image, image_bytes),
        _weights(summary, here),
        row_state(summary, world, here, image, runtime),
    )


def runtime_note(images: Iterable[ProfileImage], runtime: str, *, installed: bool) -> str | None:
    """Say why images are unknown or missing all at once; None where the runtime has answered, or none is needed."""
    states = {one.state for one in images} - {ImageState.NOT_NEEDED}
    if states and not installed:
        return f"{runtime} is not installed, so no image is here; `sparkdash doctor podman` says what to do."
    if ImageState.UNKNOWN in states:
        return f"{runtime} does not answer, so its images are unknown; `sparkdash doctor podman` says why."
    return None


def _weights(summary: ProfileSummary, here: ProfileStock | None) -> str:
    if here is None or here.weights is None:
        return DASH
    if here.weights.here:
        return size(here.weights.size)
    return "to pull" if all(ref.hf for ref in summary.weights) else "missing"


def row_state(
    summary: ProfileSummary,
    world: Snapshot | None,
    here: ProfileStock | None,
    image: ProfileImage | None,
    runtime: str,
) -> str:
    """Say what a profile does or what it lacks; the first thing in the way comes first."""
    if summary.cannot_run:
        return "cannot run"
    if summary.engine is EngineKind.REMOTE:
        return "elsewhere"
    if world is not None and (parked := world.parked.get(summary.name)):
        return f"parked: {parked.failure.code}"
    if world is not None and (engine := world.engines.get(summary.name)):
        return engine.state.value + (", edited" if world.is_outdated(summary.name) else "")
    idle = "stopped" if world is not None else "no daemon" if summary.engine is EngineKind.OPENAI else "can start"
    return _lacking(summary, here, image, runtime) or idle


def _lacking(
    summary: ProfileSummary, here: ProfileStock | None, image: ProfileImage | None, runtime: str
) -> str | None:
    state = image.state if image is not None else ImageState.NOT_NEEDED
    weights = here.weights if here is not None else None
    lacks = weights is not None and not weights.here
    if state is ImageState.NOT_TO_BE_HAD:
        return "no image"
    if lacks and not all(ref.hf for ref in summary.weights):
        return "no weights"
    if state is ImageState.UNKNOWN:
        return f"{runtime} silent"
    if state is ImageState.TO_BUILD:
        return "can be built"
    return "can be pulled" if lacks or state is ImageState.TO_PULL else None
