"""Last failure of a profile's engine and the folder with its evidence, for `why` and `logs`.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from sparkdash.units import age

if TYPE_CHECKING:
    from sparkdash.domain.engine import Failure
    from sparkdash.domain.state import Snapshot

RECENT_S = 86_400.0
"""Incidents are shown for a day; `sparkdash history --by incident` lists older ones."""


def failure_of(world: Snapshot, profile: str) -> Failure | None:
    """Return the current failure of a failed engine or a parked profile."""
    engine, parked = world.engines.get(profile), world.parked.get(profile)
    if engine is not None and engine.failure is not None:
        return engine.failure
    return parked.failure if parked is not None else None


def evidence_of(world: Snapshot, profile: str) -> str | None:
    """Return the evidence folder of the current failure, else of the profile's last incident if recent."""
    failure = failure_of(world, profile)
    if failure is not None and failure.evidence:
        return failure.evidence
    recent = (one for one in world.incidents if one.profile == profile and world.at - one.named_at < RECENT_S)
    return next((one.evidence for one in recent if one.evidence), None)


def failure_rows(world: Snapshot, profile: str) -> Iterator[tuple[str, str]]:
    """Yield label and text of each line: failure, remedy, evidence folder."""
    failure, engine = failure_of(world, profile), world.engines.get(profile)
    if failure is not None:
        when = f"{age(max(0.0, world.at - engine.since))} ago: " if engine is not None and engine.failure else ""
        yield "last failure", f"{when}{failure.message}"
        if failure.hint:
            yield "", failure.hint
    if folder := evidence_of(world, profile):
        yield "evidence", folder
