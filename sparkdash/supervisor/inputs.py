"""Inputs of the supervisor: everything that its caller hands in, each behind its contract.

Owns: their names, types and defaults. Must not know what the supervisor does with them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from sparkdash.catalog import Catalog
from sparkdash.domain.copying import CopyPlan, CopyProgress
from sparkdash.domain.engine import Engine
from sparkdash.domain.event import Fact
from sparkdash.domain.evidence import TakeEvidence, no_evidence
from sparkdash.domain.figures import EngineFigures, GpuFigures
from sparkdash.domain.memory.account import Holding
from sparkdash.domain.profile import Profile
from sparkdash.engines import registry
from sparkdash.engines.adapter import EngineAdapter
from sparkdash.errors import EngineError
from sparkdash.host.flag_store import FlagStore
from sparkdash.host.kernel_log.reader import KernelLog
from sparkdash.host.memory_guard.guard import MemoryGuard
from sparkdash.host.memory_helper.helper import MemoryHelper
from sparkdash.host.nodes import Nodes
from sparkdash.host.reader import HostReader
from sparkdash.host.runtime import Runtime
from sparkdash.settings import Settings
from sparkdash.store import Store
from sparkdash.supervisor.clock import Clock, SystemClock
from sparkdash.supervisor.liveness.judge import Thresholds
from sparkdash.supervisor.liveness.signals import EngineSignals
from sparkdash.upstream import Upstream


class SignalSource(Protocol):
    """Gathers the signals of one engine's liveness."""

    def __call__(self, profile: Profile, engine: Engine, *, lag_s: float = 0.0) -> Awaitable[EngineSignals]:
        """Look now, in a few seconds at most; `lag_s`: how late the caller was to look."""
        ...


class Shipper(Protocol):
    """Brings images and weights from this box to other nodes."""

    async def plan(
        self,
        profile: Profile,
        node: str,
        *,
        alike: bool = True,
        trust_names: bool = False,
        on_progress: Callable[[CopyProgress], object],
    ) -> CopyPlan:
        """Find out what the node lacks of a profile. `alike`: it must have the same as this box.

        `trust_names`: files that are named by their checksum are not hashed. Raises HostError.
        """
        ...

    def copy(self, profile: Profile, plan: CopyPlan) -> AsyncGenerator[CopyProgress, None]:
        """Copy what a plan found missing; closing the generator stops it. Raises HostError."""
        ...


class Telemetry(Protocol):
    """Latest readings of telemetry, answered without asking anybody."""

    def figures(self, name: str) -> EngineFigures | None:
        """Return the last raw figures of the profile's engine; None where there is none, or it tells nothing."""
        ...

    @property
    def gpu(self) -> GpuFigures | None:
        """Last answered reading of the GPU."""
        ...


async def _do_nothing(_profile: str) -> None: ...


async def not_killed(_container: str) -> EngineError | None:
    """No other node has a memory guard."""
    return None


@dataclass(frozen=True, slots=True)
class SupervisorInputs:
    """Dependencies and options of one supervisor."""

    catalog: Catalog
    runtime: Runtime
    upstream: Upstream
    reader: HostReader
    publish: Callable[[Fact], object]
    settings: Settings
    owner: str
    """Value of our containers' owner label."""
    nodes: Nodes | None = None
    """Boxes that engines may run on; None: this box alone."""
    shipper: Shipper | None = None
    """Copies image and weights to other nodes; None: they are expected to be there."""
    killed_on_node: Callable[[str], Awaitable[EngineError | None]] = not_killed
    """Why another node's memory guard killed a container or its worker; None if none did. Takes seconds at most."""
    store: Store | None = None
    """Store of the daemon; without one, records end with the daemon."""
    guard: MemoryGuard | None = None
    flags: FlagStore | None = None
    clock: Clock = field(default_factory=SystemClock)
    on_needs: Callable[[], object] = lambda: None
    """Called when more is known of what launches need."""
    adapter: Callable[[Profile], EngineAdapter] = registry.adapter_of
    before_ready: Callable[[str], Awaitable[object]] = _do_nothing
    """Called with a profile just before clients may use its engine. Never fails; takes a second at most."""
    foreign: Callable[[], Sequence[Holding]] = tuple
    """Other large holders of the box's memory, largest first; empty if not looked at lately. Answers at once."""
    look: SignalSource | None = None
    """Gathers the signals of an engine's liveness; None without `telemetry`: no engine is judged."""
    telemetry: Callable[[], Telemetry] | None = None
    """Readings that the supervisor's own SignalSource looks at."""
    thresholds: Thresholds = field(default_factory=Thresholds)
    """Limits by which engines are judged."""
    take_evidence: TakeEvidence = no_evidence
    """Keeps what can be seen of an engine that hangs, before it is ended."""
    kernel_log: KernelLog | None = None
    """Kernel's log of this box; None where engines are simulated."""
    memory_helper: MemoryHelper | None = None
    """Frees and compacts the box's memory as root, where its unit is installed."""
