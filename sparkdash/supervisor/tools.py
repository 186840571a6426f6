"""Tools: dependencies of the supervisor's modules that do I/O, built from its inputs.

Owns: which parts exist, and how they are put together. Must not know what they are used for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass

from sparkdash.domain.evidence import TakeEvidence
from sparkdash.domain.memory.account import Holding
from sparkdash.domain.memory.contiguity import LoadContiguity
from sparkdash.domain.profile import Profile
from sparkdash.engines.adapter import EngineAdapter
from sparkdash.errors import EngineError, SparkdashError
from sparkdash.host.kernel_log.reader import KernelLog
from sparkdash.host.memory_helper.helper import MemoryHelper
from sparkdash.host.nodes import Nodes, OneNode
from sparkdash.host.reader import HostReader
from sparkdash.host.runtime import Runtime
from sparkdash.settings import Settings
from sparkdash.supervisor.books import Books
from sparkdash.supervisor.clock import Clock
from sparkdash.supervisor.flag_probe import FlagProbe
from sparkdash.supervisor.inputs import Shipper, SignalSource, SupervisorInputs
from sparkdash.supervisor.liveness.judge import Thresholds
from sparkdash.supervisor.logbook import Logbook
from sparkdash.supervisor.memory.guard import GuardedEngines
from sparkdash.supervisor.memory.needs import Needs
from sparkdash.supervisor.ports import Ports
from sparkdash.units import GIB
from sparkdash.upstream import Upstream


@dataclass(slots=True)
class Tools:
    """Dependencies of the supervisor's modules that do I/O.

    They live as long as the supervisor. Only `settings` is replaced, when its file was edited; `look` is set once,
    before anything runs, since it needs the others.
    """

    runtime: Runtime
    upstream: Upstream
    reader: HostReader
    nodes: Nodes
    """Boxes that engines may run on, this one among them."""
    shipper: Shipper | None
    """Copies image and weights to other nodes; None: they are expected to be there."""
    killed_on_node: Callable[[str], Awaitable[EngineError | None]]
    """Why another node's memory guard killed a container or its worker; None if none did. Takes seconds at most."""
    settings: Settings
    clock: Clock
    books: Books
    logbook: Logbook
    ports: Ports
    guarded: GuardedEngines
    owner: str
    """Value of our containers' owner label."""
    adapter: Callable[[Profile], EngineAdapter]
    needs: Needs
    """Memory need of a launch; answered at once."""
    before_ready: Callable[[str], Awaitable[object]]
    """Called with a profile just before clients may use its engine. Never fails; takes a second at most."""
    flags: FlagProbe
    """Flags that the engines' programs list in their `--help`."""
    profiles: Callable[[], Iterable[Profile]]
    """Returns the profiles as they were read last."""
    foreign: Callable[[], Sequence[Holding]]
    """Other large holders of the box's memory, largest first; empty if not looked at lately. Answers at once."""
    look: SignalSource | None
    """Gathers the signals of an engine's liveness; None: nobody judges engines."""
    thresholds: Thresholds
    """Limits by which engines are judged."""
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


def build_tools(inputs: SupervisorInputs, profiles: Callable[[], Iterable[Profile]]) -> Tools:
    """Build the tools from the supervisor's inputs; `profiles` returns those that were read last."""
    runtime, reader, store, clock = inputs.runtime, inputs.reader, inputs.store, inputs.clock
    books = Books(inputs.publish, clock)
    learned = store.footprint if store else lambda _fingerprint: None
    needs = Needs(learned, inputs.settings.hf_home.expanduser(), lambda: _total(reader))
    return Tools(
        runtime=runtime,
        upstream=inputs.upstream,
        reader=reader,
        nodes=inputs.nodes or OneNode(reader),
        shipper=inputs.shipper,
        killed_on_node=inputs.killed_on_node,
        settings=inputs.settings,
        clock=clock,
        books=books,
        logbook=Logbook(runtime),
        ports=Ports(*inputs.settings.engine_ports, seed=inputs.owner),
        guarded=GuardedEngines(inputs, books, needs),
        owner=inputs.owner,
        adapter=inputs.adapter,
        needs=needs,
        before_ready=inputs.before_ready,
        profiles=profiles,
        foreign=inputs.foreign,
        load_history=lambda: store.contiguity if store else (),
        flags=FlagProbe(inputs.flags, runtime=runtime, reader=reader, books=books, clock=clock, adapter=inputs.adapter),
        look=inputs.look,
        thresholds=inputs.thresholds,
        take_evidence=inputs.take_evidence,
        kernel_log=inputs.kernel_log,
        memory_helper=inputs.memory_helper,
    )


def _total(reader: HostReader) -> int | None:
    try:
        return reader.memory().total
    except SparkdashError:
        return None
