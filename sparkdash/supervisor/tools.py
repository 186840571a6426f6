"""What the doing half of the room is handed: outside things, each behind its contract."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from sparkdash.domain.engine import Engine
from sparkdash.domain.event import Fact
from sparkdash.domain.evidence import TakeEvidence
from sparkdash.domain.memory.account import Holding
from sparkdash.domain.memory.contiguity import LoadContiguity
from sparkdash.domain.profile import EngineKind, Profile
from sparkdash.engines.adapter import EngineAdapter
from sparkdash.errors import SparkdashError
from sparkdash.host.flag_store import FlagStore
from sparkdash.host.kernel_log.reader import KernelLog
from sparkdash.host.memory_guard.guard import MemoryGuard
from sparkdash.host.memory_helper.helper import MemoryHelper
from sparkdash.host.reader import HostReader
from sparkdash.host.runtime import Runtime
from sparkdash.settings import Settings
from sparkdash.store import Store
from sparkdash.supervisor.books import Books
from sparkdash.supervisor.clock import Clock
from sparkdash.supervisor.flag_probe import FlagProbe
from sparkdash.supervisor.liveness.judge import Thresholds
from sparkdash.supervisor.liveness.signals import EngineSignals
from sparkdash.supervisor.logbook import Logbook
from sparkdash.supervisor.memory.guard import GuardedEngines
from sparkdash.supervisor.memory.needs import Needs
from sparkdash.supervisor.ports import Ports
from sparkdash.units import GIB
from sparkdash.upstream import Upstream


class SignalSource(Protocol):
    """Gathers the signals of one engine's liveness."""

    def __call__(self, profile: Profile, engine: Engine, *, lag_s: float = 0.0) -> Awaitable[EngineSignals]:
        """Look now, in a few seconds at most; `lag_s`: how late the caller was to look."""
        ...


@dataclass(slots=True)
class Tools:
    """One for the supervisor's life. Nothing of it is replaced but `settings`, by the supervisor, when their file was edited.

    `look` is set once, before anything runs: it needs the others.
    """

    runtime: Runtime
    upstream: Upstream
    reader: HostReader
    settings: Settings
    clock: Clock
    books: Books
    logbook: Logbook
    ports: Ports
    guarded: GuardedEngines
    owner: str
    """The value of our containers' owner label."""
    adapter: Callable[[EngineKind], EngineAdapter]
    needs: Needs
    """What a launch takes; answered at once."""
    before_ready: Callable[[str], Awaitable[object]]
    """Called with a profile just before clients may use its engine. Never fails; takes a second at most."""
    flags: FlagProbe
    """Flags that the engines' programs list in their `--help`."""
    profiles: Callable[[], Iterable[Profile]]
    """The profiles, as they were read last."""
    foreign: Callable[[], Sequence[Holding]]
    """Who else holds much of the box's memory, largest first; nobody if that was not looked at lately. Answers at once."""
    look: SignalSource | None
    """Gathers the signals of an engine's liveness; None: nobody judges engines."""
    thresholds: Thresholds
    """By which engines are judged."""
    load_history: Callable[[], Sequence[LoadContiguity]]
    """Free blocks before and after the last loads, oldest first."""
    take_evidence: TakeEvidence
    """Keeps what can be seen of an engine that hangs, before it is ended."""
    kernel_log: KernelLog | None
    """The kernel's log of this box; None where engines are simulated."""
    memory_helper: MemoryHelper | None
    """Frees and compacts the box's memory as root, where its unit is installed."""

    @property
    def reserve_bytes(self) -> int:
        """Bytes that admission keeps free."""
        return int(self.settings.reserve_gib * GIB)


def furnish(
    *,
    runtime: Runtime,
    upstream: Upstream,
    reader: HostReader,
    publish: Callable[[Fact], object],
    settings: Settings,
    owner: str,
    store: Store | None,
    guard: MemoryGuard | None,
    flags: FlagStore | None,
    clock: Clock,
    adapter: Callable[[EngineKind], EngineAdapter],
    before_ready: Callable[[str], Awaitable[object]],
    profiles: Callable[[], Iterable[Profile]],
    foreign: Callable[[], Sequence[Holding]],
    look: SignalSource | None,
    thresholds: Thresholds,
    take_evidence: TakeEvidence,
    kernel_log: KernelLog | None,
    memory_helper: MemoryHelper | None,
) -> Tools:
    """All of them, out of what the room is handed."""
    books = Books(publish, clock)
    learned = store.footprint if store else lambda _fingerprint: None
    needs = Needs(learned, settings.hf_home.expanduser(), lambda: _total(reader))
    return Tools(
        runtime=runtime,
        upstream=upstream,
        reader=reader,
        settings=settings,
        clock=clock,
        books=books,
        logbook=Logbook(runtime),
        ports=Ports(*settings.engine_ports, seed=owner),
        guarded=GuardedEngines(
            guard,
            books=books,
            runtime=runtime,
            reader=reader,
            publish=publish,
            clock=clock,
            settings=settings,
            needs=needs,
            store=store,
        ),
        owner=owner,
        adapter=adapter,
        needs=needs,
        before_ready=before_ready,
        profiles=profiles,
        foreign=foreign,
        load_history=lambda: store.contiguity if store else (),
        flags=FlagProbe(flags, runtime=runtime, reader=reader, books=books, clock=clock, adapter=adapter),
        look=look,
        thresholds=thresholds,
        take_evidence=take_evidence,
        kernel_log=kernel_log,
        memory_helper=memory_helper,
    )


def _total(reader: HostReader) -> int | None:
    try:
        return reader.memory().total
    except SparkdashError:
        return None
