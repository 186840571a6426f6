"""Deps: everything the gateway is handed, and the little that it expects of each part.

The protocols name only what the gateway uses, so that its tests can hand it something small.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from itertools import count

from sparkdash.domain.finding import Diagnosis
from sparkdash.domain.lease import Request
from sparkdash.domain.memory.account import MemoryAccount
from sparkdash.domain.profile import ProfileSummary
from sparkdash.domain.shelf import Shelf
from sparkdash.gateway.count.counter import TokenCounter
from sparkdash.gateway.http.event_feed import EventEncoder
from sparkdash.gateway.http.exchange import Exchange
from sparkdash.gateway.ports import BusPort, CatalogPort, KeysPort, RequestRegistryPort, SupervisorPort
from sparkdash.gateway.shared.body_budget import BodyBudget
from sparkdash.gateway.shared.cancellable import RunningRequests
from sparkdash.gateway.shared.exclusive import Exclusive
from sparkdash.gateway.shared.row_publisher import RowPublisher
from sparkdash.gateway.translate.translator import Translator
from sparkdash.settings import Settings
from sparkdash.upstream import Upstream


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

    supervisor: SupervisorPort
    bus: BusPort
    upstream: Upstream
    catalog: Callable[[], CatalogPort]
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
    keys: KeysPort | None = None
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
    counter: TokenCounter | None = None
    """Counts the tokens of requests to what is not loaded; None: nobody does."""
    fallback_notices: dict[tuple[str, str, str], float] = field(default_factory=dict)
    """Which profile answered for which other one and why, and when that was last told."""
    exclusive: Exclusive = field(default_factory=Exclusive)
    """Who has the gateway to itself."""
    running: RequestRegistryPort = field(default_factory=RunningRequests)
    """The requests that may be cancelled."""
    row_publisher: RowPublisher = field(default_factory=RowPublisher)
    """When the requests' rows are told."""
    clock: Callable[[], float] = time.time
    """Unix seconds."""
    monotonic: Callable[[], float] = time.monotonic
    new_id: Callable[[], str] = _new_id
    event_encoder: EventEncoder = field(default_factory=EventEncoder)
    """Encoded events, shared by all listeners with the same view."""
    body_budget: BodyBudget = field(init=False)
    """For the bodies of requests."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "body_budget", BodyBudget(self.settings.bodies_limit_mib))

    def with_views(
        self, bus: BusPort, catalog: Callable[[], CatalogPort], supervisor: SupervisorPort, running: RequestRegistryPort
    ) -> Deps:
        """The same with another view of the world; whatever is counted is counted together."""
        other = copy(self)
        views = {
            "bus": bus,
            "catalog": catalog,
            "supervisor": supervisor,
            "running": running,
            "event_encoder": EventEncoder(),
        }
        for name, view in views.items():
            object.__setattr__(other, name, view)
        return other
