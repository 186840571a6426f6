"""What the scheduler's books hold. Pure data, written by the scheduler alone."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from sparkdash.domain.swap import SwapCause

USE = "(use)"
"""Id of the one ticket that stands for a person's wish; no request has it."""


class Stage(Enum):
    """How far the swap under way has come, as far as decisions go."""

    DRAINING = auto()
    """Nothing is stopped yet; leases on the evicted engines are waited for."""
    GOING = auto()
    CANCELLING = auto()
    """Given up; the actor cleans up."""


@dataclass(slots=True)
class Change:
    """The swap under way."""

    target: str | None
    evict: tuple[str, ...]
    cause: SwapCause
    fingerprint: str | None
    """Of the target, as the catalog was when the swap began."""
    stage: Stage = Stage.DRAINING


@dataclass(frozen=True, slots=True)
class Ticket:
    """One who waits."""

    id: str
    profile: str
    cause: SwapCause = SwapCause.REQUEST
    follows: bool = False
    """It asked for `auto`: when its target fails it takes whatever runs then."""


@dataclass(slots=True)
class Resident:
    """An engine that is there."""

    fingerprint: str | None
    managed: bool
    ready: bool = True
    """False: it would not stop, and serves nobody."""
