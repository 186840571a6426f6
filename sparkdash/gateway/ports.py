"""Ports: protocols of what the gateway uses of the supervisor, the bus, the catalog and the keys.

Owns: the few methods of each part that the gateway calls, so that tests can hand it small doubles. Must not know who
implements them.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from sparkdash.access.key import Key
from sparkdash.domain.container import PullProgress
from sparkdash.domain.engine import Engine
from sparkdash.domain.event import Event, Fact
from sparkdash.domain.history import (
    FigureList,
    MarkList,
    MarkSelection,
    PastRequests,
    RecentFigures,
    RecentSelection,
    RequestSelection,
    Series,
    SeriesSelection,
    UsageReport,
    UsageSelection,
    Visible,
)
from sparkdash.domain.incident import IncidentList
from sparkdash.domain.profile import Profile
from sparkdash.domain.state import Snapshot
from sparkdash.domain.swap import Plan, SetPlan, SwapCause
from sparkdash.domain.task import Task
from sparkdash.domain.weights import WeightFacts
from sparkdash.errors import AdmissionError, SparkdashError
from sparkdash.supervisor.leasing import AnswerProgress

EndRequest = Callable[[AdmissionError], object]
"""Ends one request that waits or runs, for the reason given."""


class LeasePort(Protocol):
    """The right to use an engine until the context is left."""

    @property
    def profile(self) -> Profile:
        """Profile that the client's name resolved to."""
        ...

    @property
    def engine(self) -> Engine:
        """The incarnation that was granted."""
        ...

    @property
    def url(self) -> str:
        """The engine's root URL, without /v1."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers that every request to this engine must carry."""
        ...

    @property
    def lost(self) -> Future[SparkdashError]:
        """Done when the engine died or the lease was cut; its result says why."""
        ...

    @property
    def names(self) -> tuple[str, ...]:
        """Model names that the engine accepts; the first replaces any other. Empty: it accepts any name."""
        ...


class SupervisorPort(Protocol):
    """The supervisor, as far as the gateway uses it."""

    def lease(
        self,
        name: str,
        *,
        request_id: str,
        on_wait: Callable[[int], object],
        batch: bool = False,
        task: Task | None = None,
        client: str | None = None,
        progress: AnswerProgress | None = None,
    ) -> AbstractAsyncContextManager[LeasePort]:
        """Wait for an engine; `batch` lets other requests go first; `task` and `client` decide what `auto` means.
        `progress` is read at each look at the health of the engine.

        `on_wait` gets the place in the queue as soon as there is one, and at each change. An UpstreamError that
        leaves the context has the engine examined, so that a second try finds a living one. If the engine died, an
        EngineError with the reason replaces the UpstreamError.
        """
        ...

    async def sickness(self, profile: Profile, url: str) -> str | None:
        """Probe the profile's engine at this URL; return why it looks dead or broken, or None when it is well or only
        slow.
        """
        ...

    async def use(self, name: str, *, cause: SwapCause) -> Plan:
        """Make a profile resident; returns before it is."""
        ...

    async def use_set(self, name: str, *, begin: bool) -> SetPlan:
        """Bring up a set of profiles side by side; returns before they are. Without `begin` only the plan is made."""
        ...

    async def plan(self, name: str) -> Plan:
        """Return the plan of `use` without carrying it out."""
        ...

    async def stop(self, name: str | None, *, wait: bool = True) -> None:
        """Stop one profile's engine, or all; return when it is gone, or at once without `wait`."""
        ...

    async def release(self, name: str | None) -> None:
        """Let a parked profile, or all, be tried again."""
        ...

    async def extend_load(self, name: str) -> None:
        """Let a load that stands still go on for its whole limit."""
        ...

    async def cancel(self) -> None:
        """Cancel the swap under way."""
        ...

    def target(self, profile: Profile) -> WeightFacts | None:
        """Return what the model's weights say, if they are on this box and were read."""
        ...

    def incidents(self) -> IncidentList:
        """List the incidents of stuck engines, newest first, and the mean time to repair."""
        ...

    def logs(self, name: str, *, tail: int | None = None, follow: bool = False) -> AsyncIterator[str]:
        """Read lines of the engine's log, also of one that has ended. Raises AdmissionError."""
        ...

    def pull(self, name: str) -> AsyncIterator[PullProgress]:
        """Fetch a profile's image."""
        ...


class CatalogPort(Protocol):
    """The catalog, as far as the gateway uses it."""

    @property
    def profiles(self) -> Mapping[str, Profile]:
        """Profiles by name."""
        ...

    @property
    def problems(self) -> Iterable[object]:
        """Files that could not be read; `str` of each is for people."""
        ...

    def find(self, name: str) -> Profile:
        """Find a profile by name, alias or basename. Raises AdmissionError `model_not_found`."""
        ...

    def exactly(self, name: str) -> Profile | None:
        """Find a profile by its exact name or alias."""
        ...


class SubscriptionPort(Protocol):
    """A listener's view of the bus."""

    def __aiter__(self) -> AsyncGenerator[Event | Snapshot, None]:
        """Iterate over events until the bus ends; a Snapshot stands in place of lost events."""
        ...

    def leave(self) -> None:
        """Stop listening. Idempotent."""
        ...


class BusPort(Protocol):
    """Methods of the bus that the gateway uses."""

    @property
    def snapshot(self) -> Snapshot:
        """State of the world now."""
        ...

    def note_poll(self) -> None:
        """Count a poll of the state as a listener for a while."""
        ...

    def publish(self, fact: Fact) -> Event:
        """Number the fact, and offer it to every listener."""
        ...

    def subscribe(self, since: int | None = None, *, samples: bool = True) -> SubscriptionPort:
        """Add a listener: after event `since` where possible, else from a snapshot; `samples`: with telemetry."""
        ...


class HistoryPort(Protocol):
    """The recorded past. Every method raises a SparkdashError while the database cannot be read."""

    async def figures(self, visible: Visible = None) -> FigureList:
        """List the recorded figures, and what has records; `visible`: profiles that the caller may see."""
        ...

    async def series(self, selection: SeriesSelection) -> Series:
        """Read one figure over a period."""
        ...

    async def recent(self, selection: RecentSelection) -> RecentFigures:
        """Read several figures over the last minutes."""
        ...

    async def usage(self, selection: UsageSelection) -> UsageReport:
        """Add up the requests of a period."""
        ...

    async def requests(self, selection: RequestSelection) -> PastRequests:
        """List ended requests."""
        ...

    async def marks(self, selection: MarkSelection) -> MarkList:
        """List the events of a period."""
        ...


class RequestRegistryPort(Protocol):
    """Requests under way that can be cancelled."""

    def begun(self, request_id: str, off: EndRequest) -> None:
        """Register a request that waits or runs; `off` cancels it."""
        ...

    def ended(self, request_id: str) -> None:
        """Remove a request that has ended."""
        ...

    def cancel(self, request_id: str) -> None:
        """Cancel a request. Raises AdmissionError `request_not_found`."""
        ...


class KeysPort(Protocol):
    """Source of the keys that may come in."""

    def look(self) -> Iterable[Key]:
        """Read the keys as they are now. Raises SparkdashError once after a change that cannot be read."""
        ...

    @property
    def last(self) -> Iterable[Key]:
        """Keys of the last successful look."""
        ...
