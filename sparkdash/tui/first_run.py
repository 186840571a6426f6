"""Offers of the dashboard on a box where nothing runs, and what it asks of the look at that box. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from sparkdash.domain.images import Stock
from sparkdash.domain.node import Finding, Status
from sparkdash.domain.profile import ProfileSummary
from sparkdash.domain.state import Snapshot


@dataclass(frozen=True, slots=True)
class RunningServer:
    """Server of another program on this box, with the names of its models as profiles."""

    kind: str
    url: str
    profiles: tuple[str, ...]
    attached: bool = False


@dataclass(frozen=True, slots=True)
class BoxFindings:
    """Findings of one look at the box."""

    servers: tuple[RunningServer, ...] = ()
    configuration: str | None = None
    """llama-swap's file, while no profile was imported from it."""
    clients: tuple[str, ...] = ()
    """Installed clients, those that do not use this gateway yet first."""


@dataclass(frozen=True, slots=True)
class IdleBox:
    """All that is known for the offers; None and empty: not known, or not looked for yet."""

    found: BoxFindings | None = None
    stock: Mapping[str, Stock] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    looking: bool = False
    can_run_commands: bool = False
    """Whether `sparkdash demo` and `sparkdash setup` can be run from here."""

    def count(self, status: Status) -> int:
        return sum(one.status is status for one in self.findings)

    @property
    def server(self) -> RunningServer | None:
        """The server to begin with: one without profiles first."""
        servers = self.found.servers if self.found else ()
        return min(servers, key=lambda one: one.attached, default=None)


class BoxLook(Protocol):
    """Looks at the box that this terminal runs on, and acts on it."""

    async def look(self, profiles: Sequence[ProfileSummary]) -> BoxFindings:
        """Look once; nothing is changed. `profiles`: those that the daemon has."""
        ...

    async def recipe(self, client: str, model: str | None) -> str:
        """Return what `sparkdash connect CLIENT` prints; `model`: a profile, None for the usual one.

        Raises:
            SparkdashError: no profile can run.
        """
        ...

    async def attach(self, server: RunningServer) -> tuple[str, ...]:
        """Write a profile for each model of a server; return the names.

        Raises:
            SparkdashError: the files cannot be written.
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
