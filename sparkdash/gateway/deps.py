"""Deps: everything the gateway is handed, and the little that it expects of each part.

The protocols name only what the gateway uses, so that its tests can hand it something small.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from copy import copy
from dataclasses import dataclass, field
from itertools import count
from typing import Protocol

from sparkdash.domain.container import PullProgress
from sparkdash.domain.engine import Engine
from sparkdash.domain.event import Event, Fact
from sparkdash.domain.finding import Diagnosis
from sparkdash.domain.incident import IncidentList
from sparkdash.domain.lease import Request
from sparkdash.domain.memory.account import MemoryAccount
from sparkdash.domain.profile import Profile, ProfileSummary
from sparkdash.domain.shelf import Shelf
from sparkdash.domain.state import Snapshot
from sparkdash.domain.swap import Plan, SwapCause
from sparkdash.domain.task import Task
from sparkdash.domain.weights import WeightFacts
from sparkdash.errors import SparkdashError
from sparkdash.gateway.admission.access import Keys
from sparkdash.gateway.count.counter import Counter
from sparkdash.gateway.http.event_feed import Encoder
from sparkdash.gateway.http.exchange import Exchange
from sparkdash.gateway.relay.silence import Heard
from sparkdash.gateway.shared.body_budget import Room
from sparkdash.gateway.shared.cancellable import AllRunning, Off
from sparkdash.gateway.shared.exclusive import Exclusive
from sparkdash.gateway.shared.row_publisher import Board
from sparkdash.gateway.translate.translator import Translator
from sparkdash.settings import Settings
from sparkdash.upstream import Upstream


class Lease(Protocol):
    """The right to use an engine until the context is left."""

    @property
    def profile(self) -> Profile:
        """What the client's name resolved to."""
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
        """What every request to this engine must carry."""
        ...

    @property
    def lost(self) -> asyncio.Future[SparkdashError]:
        """Done when the engine died or the lease was cut; its result says why."""
        ...

    @property
    def names(self) -> tuple[str, ...]:
        """Model names that the engine accepts; the first replaces any other. Empty: it takes whatever the client wrote."""
        ...


class Supervisor(Protocol):
    """What the gateway asks of the supervisor."""

    def lease(
        self,
        name: str,
        *,
        request_id: str,
        on_wait: Callable[[int], object],
        batch: bool = False,
        task: Task | None = None,
        client: str | None = None,
        progress: Heard | None = None,
    ) -> AbstractAsyncContextManager[Lease]:
        """Wait for an engine; `batch` lets other requests go first; `task` and `client` decide what `auto` means.
        `progress` is asked whenever somebody looks whether the engine lives.

        `on_wait` is told the place in the queue as soon as there is one, and at each change. An UpstreamError that
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

    async def plan(self, name: str) -> Plan:
        """What `use` would do."""
        ...

    async def stop(self, name: str | None, *, wait: bool = True) -> None:
        """Stop one profile's engine, or all; return when it is gone, or at once without `wait`."""
        ...

    async def release(self, name: str | None) -> None:
        """Let a parked profile, or all, be tried again."""
        ...

    async def cancel(self) -> None:
        """Give the swap under way up."""
        ...

    def target(self, profile: Profile) -> WeightFacts | None:
        """What its model's weights say, where they are on this box and were read."""
        ...

    def incidents(self) -> IncidentList:
        """Times that an engine stood still, newest first, and the mean time to repair."""
        ...

    def logs(self, name: str, *, tail: int | None = None, follow: bool = False) -> AsyncIterator[str]:
        """Lines of the engine's log, also of one that has ended. Raises AdmissionError."""
        ...

    def pull(self, name: str) -> AsyncIterator[PullProgress]:
        """Fetch a profile's image."""
        ...


class Catalog(Protocol):
    """What the gateway asks of the catalog."""

    @property
    def profiles(self) -> Mapping[str, Profile]:
        """By name."""
        ...

    @property
    def problems(self) -> Iterable[object]:
        """Files that could not be read; `str` of each is for people."""
        ...

    def find(self, name: str) -> Profile:
        """By name, alias or basename. Raises AdmissionError `model_not_found`."""
        ...

    def exactly(self, name: str) -> Profile | None:
        """Find a profile by its exact name or alias."""
        ...


class Subscription(Protocol):
    """A listener's view of the bus."""

    def __aiter__(self) -> AsyncGenerator[Event | Snapshot, None]:
        """Iterate over events until the bus ends; a Snapshot stands in place of lost events."""
        ...

    def leave(self) -> None:
        """Stop listening. Idempotent."""
        ...


class Bus(Protocol):
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

    def subscribe(self, since: int | None = None, *, samples: bool = True) -> Subscription:
        """Add a listener: after event `since` where possible, else from a snapshot; `samples`: with telemetry."""
        ...


class Running(Protocol):
    """Requests under way that can be cancelled."""

    def begun(self, request_id: str, off: Off) -> None:
        """Register a request that waits or runs; `off` cancels it."""
        ...

    def ended(self, request_id: str) -> None:
        """Remove a request that has ended."""
        ...

    def cancel(self, request_id: str) -> None:
        """Cancel a request. Raises AdmissionError `request_not_found`."""
        ...


async def _as_it_is() -> None:
    """Nothing is watched."""


def _nothing(_name: str) -> int:
    return 0


_NUMBERS = count((time.time_ns() // 1_000_000 & 0xFFFFFFFFF) << 20)
"""They begin with this start's milliseconds, which begin anew after two years: the books keep rows of earlier daemons, and none may
take the place of one. A million requests in, they are a later millisecond's, which is long over by then."""


def _new_id() -> str:
    """They follow on one another: the books' index then grows at its end, which saves a third of what a row costs there."""
    return hex(next(_NUMBERS))[2:]


@dataclass(frozen=True)
class Deps:
    """Handed over by the daemon, the demo, or a test."""

    supervisor: Supervisor
    bus: Bus
    upstream: Upstream
    catalog: Callable[[], Catalog]
    settings: Settings
    reload: Callable[[], Awaitable[object]]
    """Read the profiles again; publishes ProfilesChanged."""
    shutdown: Callable[[bool], Awaitable[None]]
    """End the daemon; True stops the engines first."""
    traffic: Callable[[bool], object] | None = None
    """Switch the demo's traffic; None where there is none."""
    record: Callable[[Request], object] | None = None
    """Keep a finished request in the books; must not block."""
    capture: Callable[[Exchange, bytes, float], None] | None = None
    """Keep what a client sent, and when, for whoever looks into it; may block. None: nothing is kept."""
    refresh: Callable[[], Awaitable[object]] = _as_it_is
    """Like `reload`, but only if a profile file was edited since; awaited before the catalog is told or used by a person."""
    examine: Callable[[Sequence[str]], Awaitable[Diagnosis]] | None = None
    """Have the doctor look at the box, with all its checks or those named; None where the box is simulated."""
    shelf: Callable[[Sequence[ProfileSummary]], Awaitable[Shelf]] | None = None
    """What of those profiles is on the box; None where it is simulated."""
    memory: Callable[[], Awaitable[MemoryAccount]] | None = None
    """Account of the box's memory by holder, as of now; None where it is simulated."""
    keys: Keys | None = None
    """Who may come in; None where nobody is ever asked for a key."""
    used_today: Callable[[str], int] = _nothing
    """Tokens that the key of that name has used in this day of UTC."""
    audit: Callable[[Mapping[str, object]], object] | None = None
    """Write down who changed what; may block, and is called in a thread."""
    runs: Callable[[str | None], Awaitable[bytes]] | None = None
    """What was measured, as JSON: all runs, or the report of the one named; None where nobody measures."""
    resume: Callable[[str], Awaitable[None]] | None = None
    """Resumes a run that is not fully measured; a Notice tells how it ended."""
    translator: Translator | None = None
    """Carries what an engine does not understand; None: engines get every request as it is."""
    counter: Counter | None = None
    """Counts the tokens of requests to what is not loaded; None: nobody does."""
    fallen: dict[tuple[str, str, str], float] = field(default_factory=dict)
    """Which profile answered for which other one and why, and when that was last told."""
    exclusive: Exclusive = field(default_factory=Exclusive)
    """Who has the gateway to itself."""
    running: Running = field(default_factory=AllRunning)
    """The requests that may be cancelled."""
    board: Board = field(default_factory=Board)
    """When the requests' rows are told."""
    clock: Callable[[], float] = time.time
    """Unix seconds."""
    monotonic: Callable[[], float] = time.monotonic
    new_id: Callable[[], str] = _new_id
    frames: Encoder = field(default_factory=Encoder)
    """Encoded events, shared by all listeners with the same view."""
    room: Room = field(init=False)
    """For the bodies of requests."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "room", Room(self.settings.bodies_limit_mib))

    def seen_through(self, bus: Bus, catalog: Callable[[], Catalog], supervisor: Supervisor, running: Running) -> Deps:
        """The same with another view of the world; whatever is counted is counted together."""
        other = copy(self)
        views = {"bus": bus, "catalog": catalog, "supervisor": supervisor, "running": running, "frames": Encoder()}
        for name, view in views.items():
            object.__setattr__(other, name, view)
        return other
