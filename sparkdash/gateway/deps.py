"""Deps: everything the gateway is handed, and the state that its requests share."""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from sparkdash.api.answers import BenchPlan, SettingList
from sparkdash.api.requests import SettingBody, StartRunBody
from sparkdash.bus import Bus
from sparkdash.catalog.catalog import Catalog
from sparkdash.domain.images import Inventory
from sparkdash.domain.memory import MemoryAccount
from sparkdash.domain.node import Diagnosis
from sparkdash.domain.profile import ProfileSummary
from sparkdash.domain.request import Request
from sparkdash.errors import AdmissionError
from sparkdash.gateway.exclusive import Exclusive
from sparkdash.gateway.http.capture import Capture, CapturedRequest
from sparkdash.gateway.http.event_feed import EventEncoder
from sparkdash.gateway.http.exchange import BodyBudget
from sparkdash.gateway.protocol.prepare import RequestPreparer
from sparkdash.gateway.protocol.replicas import ReplicaChoice
from sparkdash.gateway.traffic_meter import TrafficMeter
from sparkdash.keyring import Keyring
from sparkdash.limits import shown
from sparkdash.settings import Settings
from sparkdash.store.past import RecordedHistory
from sparkdash.supervisor import Supervisor
from sparkdash.upstream import Upstream

TOGETHER_S = 0.02
"""Seconds within which an update is published: shorter than people see, longer than most bursts' first bytes."""

Publish = Callable[[], object]
EndRequest = Callable[[AdmissionError], object]
"""Ends one request that waits or runs, for the reason given."""


class RowPublisher:
    """Publisher of the gateway. Its timer runs every half of TOGETHER_S while updates are queued, and not otherwise.

    An update is published at the second turn after it was queued.
    """

    def __init__(self) -> None:
        self._new: list[Publish] = []
        self._waiting: list[Publish] = []
        """Updates queued before the last turn."""
        self._timer: asyncio.TimerHandle | None = None

    def publish_soon(self, publish: Publish) -> None:
        """Have `publish` called within TOGETHER_S, and not before half of it."""
        self._new.append(publish)
        if self._timer is None:
            self._start()

    def _start(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(TOGETHER_S / 2, self._turn)

    def _turn(self) -> None:
        due, self._waiting, self._new = self._waiting, self._new, []
        self._timer = None
        if self._waiting:
            self._start()
        for publish in due:
            publish()


class RunningRequests(dict[str, EndRequest]):
    """Waiting and running requests by id, each with the function that ends it."""

    def cancel(self, request_id: str) -> None:
        """Cancel a request: its client is told, and its engine stops working on it.

        Raises:
            AdmissionError: code `request_not_found`, status 404: it is over, or there never was one.
        """
        off = self.pop(request_id, None)
        if off is None:
            raise AdmissionError(
                f"No request {shown(request_id)!r} is waiting or running.",
                code="request_not_found",
                status=404,
                hint="`sparkdash requests` lists the current ones.",
            )
        off(AdmissionError("The owner of this box cancelled this request.", code="request_cancelled"))


async def _no_refresh() -> None:
    """Do nothing: profile files are not watched."""


_REQUEST_NUMBERS = count((time.time_ns() // 1_000_000 & 0xFFFFFFFFF) << 20)
"""Numbers that begin with the milliseconds of this start, so that no row of an earlier daemon is overwritten.

The milliseconds repeat after two years. After a million requests, a number runs into the next millisecond's range,
which has long passed by then.
"""


def _new_id() -> str:
    """Make the id of a request. Ids ascend: the database's index then grows at its end, which saves a third per row."""
    return hex(next(_REQUEST_NUMBERS))[2:]


@dataclass(frozen=True)
class Deps:
    """Dependencies of the gateway's handlers, handed over by the daemon, the demo, or a test."""

    supervisor: Supervisor
    bus: Bus
    upstream: Upstream
    catalog: Callable[[], Catalog]
    settings: Settings
    body_budget: BodyBudget
    reload: Callable[[], Awaitable[object]]
    """Read the profiles again; publishes ProfilesChanged."""
    settings_list: Callable[[], Awaitable[SettingList]]
    change_setting: Callable[[SettingBody], Awaitable[SettingList]]
    """Change one setting in config.toml."""
    shutdown: Callable[[bool], Awaitable[None]]
    """End the daemon; True stops the engines first."""
    choices: Callable[[], Mapping[str, Sequence[str]]] = dict
    """Names that mean one of several profiles, as the settings have them now."""
    record: Callable[[Request], object] | None = None
    """Store a finished request in the database; must not block."""
    metrics: Callable[[str], Awaitable[tuple[bytes, str]]] | None = None
    """Write the page of metrics in the format of an Accept header; return it with its content type."""
    capture: Capture | None = None
    """Writer of the capture files; may block. None: capturing is off."""
    captured: Callable[[str], CapturedRequest | None] | None = None
    """Find a captured request by its id; may block. None where nothing can have been captured."""
    responses: Path | None = None
    """Folder of the responses that are kept; None: none is."""
    refresh: Callable[[], Awaitable[object]] = _no_refresh
    """As `reload`, but only after an edit of a profile file; awaited before a person reads or uses the catalog."""
    examine: Callable[[Sequence[str]], Awaitable[Diagnosis]] | None = None
    """Run the doctor's checks, all or those named; None on a simulated box."""
    inventory: Callable[[Sequence[ProfileSummary]], Awaitable[Inventory]] | None = None
    """Look which images and weights of the profiles are on the box; None on a simulated box."""
    memory: Callable[[], Awaitable[MemoryAccount]] | None = None
    """Account for the box's memory by holder; None on a simulated box."""
    history: RecordedHistory | None = None
    """The recorded past; None: nothing is recorded."""
    keys: Keyring | None = None
    """Source of keys; None: no key is ever needed."""
    used_today: Callable[[str], int] = lambda _key: 0
    """Tokens that the key of that name has used since midnight UTC."""
    audit: Callable[[Mapping[str, object]], object] | None = None
    """Append a line to the audit log; may block, called in a thread."""
    runs: Callable[[str | None], Awaitable[bytes]] | None = None
    """Bench runs as JSON: the list, or the report of the one named; None without a bench."""
    start_run: Callable[[StartRunBody], Awaitable[BenchPlan]] | None = None
    """Plan or begin a bench run; None without a bench."""
    resume: Callable[[str], Awaitable[None]] | None = None
    """Resume an unfinished bench run; a Notice tells how it ended."""
    fallback_notices: dict[tuple[str, str, str], float] = field(default_factory=dict)
    """Time of the last announcement of each (asked profile, answering profile, code)."""
    replicas: ReplicaChoice = field(default_factory=ReplicaChoice)
    exclusive: Exclusive = field(default_factory=Exclusive)
    running: RunningRequests = field(default_factory=RunningRequests)
    meter: TrafficMeter = field(default_factory=lambda: TrafficMeter(time.monotonic))
    """Counts what passes through, for telemetry."""
    row_publisher: RowPublisher = field(default_factory=RowPublisher)
    preparer: RequestPreparer = field(default_factory=RequestPreparer)
    system_first: set[tuple[str, float | None]] = field(default_factory=set)
    """Incarnations of engines (URL, start) whose template refused more than one system message."""
    chat_only: set[tuple[str, float | None, str]] = field(default_factory=set)
    """Incarnations of engines, with the paths that they answered with 404."""
    left_out: set[tuple[str, str, str]] = field(default_factory=set)
    """Profile, path and words of each line in the log about what a chat does not carry."""
    hop_id: str = field(default_factory=lambda: secrets.token_hex(6))
    """Marks requests that leave for a server elsewhere: one that comes back is refused."""
    clock: Callable[[], float] = time.time
    """Unix seconds."""
    monotonic: Callable[[], float] = time.monotonic
    new_id: Callable[[], str] = _new_id
    event_encoder: EventEncoder = field(default_factory=EventEncoder)
    """Encodes events once for all listeners."""
