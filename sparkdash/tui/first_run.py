"""Offers of the dashboard on a box where nothing runs, and what it asks of the look at that box. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from sparkdash.domain.images import Stock
from sparkdash.domain.node import Finding, Status
from sparkdash.domain.profile import ProfileSummary
from sparkdash.domain.state import Snapshot


@dataclass(frozen=True, slots=True)
class IdleBox:
    """All that is known for the offers; empty: not known, or not looked for yet."""

    clients: tuple[str, ...] = ()
    """Installed clients, those that do not use this gateway yet first."""
    stock: Mapping[str, Stock] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    looking: bool = False
    can_run_commands: bool = False
    """Whether `sparkdash demo` and `sparkdash setup` can be run from here."""

    def count(self, status: Status) -> int:
        return sum(one.status is status for one in self.findings)


class BoxLook(Protocol):
    """Looks at the box that this terminal runs on, and acts on it."""

    async def clients(self) -> tuple[str, ...]:
        """Return the installed clients, those that do not use this gateway yet first."""
        ...

    async def recipe(self, client: str, model: str | None) -> str:
        """Return what `sparkdash connect CLIENT` prints; `model`: a profile, None for the usual one.

        Raises:
            SparkdashError: no profile can run.
        """
        ...

    def run_command(self, command: str) -> None:
        """Run `sparkdash COMMAND` in this terminal until it ends."""
        ...


def fitting(snapshot: Snapshot) -> list[ProfileSummary] | None:
    """Return the profiles of known need that fit into the idle box; None while its memory is unknown."""
    memory = snapshot.sample.memory if snapshot.sample else None
    if memory is None:
        return None
    return [one for one in snapshot.profiles if one.fits_idle_box(memory.total, memory.reserve)]


def on_disk(profiles: list[ProfileSummary], stock: Mapping[str, Stock]) -> list[ProfileSummary]:
    """Return the profiles whose weights are on this box, those whose image is there too first."""
    here = [one for one in profiles if (held := stock.get(one.name)) and held.weights and held.weights.here]
    return sorted(here, key=lambda one: not ((image := stock[one.name].image) is None or image.here))
