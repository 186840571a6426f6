"""Lease of a node's memory guard: the limits and engines that the guard is told, as its script reads them.

Owns: the form. The limits are those of this box's guard for a box of the node's size. Must not know how the lease gets
there.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from sparkdash.host.memory import guard_decisions
from sparkdash.settings import Settings

TTL_S = 60.0
"""Time without renewal after which a guard without engines ends: four renewals."""
FIGURES: dict[str, float] = {
    name: getattr(guard_decisions, name)
    for name in (
        "EVERY_S", "QUICK_S", "KILL_S", "REACH_S", "FALL_S", "SAMPLES", "MARGIN", "PRESSED", "RISE", "ROSE_S", "OWED_S",
        "WORSE",
    )
}  # fmt: skip
"""Constants of the guard's rules, by their names in `decisions`."""


@dataclass(frozen=True, slots=True)
class GuardedContainer:
    """Container on the node that its guard may kill, with the cost of that; as `decisions.Victim`."""

    container: str
    profile: str
    serves: bool = False
    pinned: bool = False
    in_flight: int = 0
    bytes: int | None = None
    reload_s: float | None = None


def make_lease(settings: Settings, total: int, containers: Iterable[GuardedContainer]) -> dict[str, Any]:
    """Return the lease for a node with `total` bytes of memory."""
    if settings.guard == "off":
        return {"stop": True}
    floors = guard_decisions.choose_floors(settings, total)
    return {
        "act": settings.guard == "act",
        "ttl_s": TTL_S,
        "floors": {"warn": floors.warn, "hold": floors.hold, "kill": floors.kill},
        "figures": FIGURES,
        "engines": [asdict(each) for each in containers],
    }


def ends(lease: dict[str, Any]) -> bool:
    """Whether this lease ends the guard instead of renewing it."""
    return bool(lease.get("stop"))
