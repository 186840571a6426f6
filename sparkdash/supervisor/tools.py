"""Dependencies of the supervisor's modules, as its caller hands them in, with the parts that are built of them."""

import asyncio
import errno
import itertools
import socket
import zlib
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from sparkdash.catalog import Catalog
from sparkdash.catalog.checkpoint import weights
from sparkdash.domain import memory
from sparkdash.domain.engine import Engine, TakeEvidence, no_evidence
from sparkdash.domain.event import Fact
from sparkdash.domain.memory import Footprint, Holding, Need
from sparkdash.domain.metric import EngineFigures, GpuFigures
from sparkdash.domain.profile import Profile
from sparkdash.domain.weights import WeightFacts
from sparkdash.engines.adapter import EngineAdapter
from sparkdash.engines.registry import adapter_of, estimate_launch
from sparkdash.engines.roofline import most_steps_s
from sparkdash.errors import EngineError, HostError, SparkdashError
from sparkdash.host.box import HostReader
from sparkdash.host.kernel_log import KernelLog
from sparkdash.host.memory.guard import MemoryGuard
from sparkdash.host.memory.helper import MemoryHelper
from sparkdash.host.runtime import Nodes, Runtime
from sparkdash.log import LOG
from sparkdash.settings import Settings
from sparkdash.store import Store
from sparkdash.supervisor.canary import Canaries
from sparkdash.supervisor.decide.judge import EngineSignals, Thresholds
from sparkdash.supervisor.state.clock import Begun, Clock, SystemClock
from sparkdash.supervisor.state.guarded import GuardedEngines
from sparkdash.supervisor.state.registry import EngineRegistry, Logbook
from sparkdash.units import GIB
from sparkdash.upstream import Upstream

if TYPE_CHECKING:
    from sparkdash.nodes.shipping.shipper import NodeShipper


class Needs:
    """Memory that launches take: a figure learned on this box, else an estimate. Only `read` looks at weights."""

    def __init__(
        self, learned: Callable[[str], Footprint | None], hf_home: Path, box_bytes: Callable[[], int | None]
    ) -> None:
        self._learned = learned
        self._hf_home = hf_home
        self._box_bytes = box_bytes
        self._estimates: dict[str, Need] = {}
        self._targets: dict[str, WeightFacts] = {}
        self._most_steps: dict[str, float | None] = {}
        """Ceiling of the decode steps per second, by fingerprint."""

    def __call__(self, profile: Profile) -> Need:
        """Return the need of this launch; unknown terms are None."""
        if seen := self._learned(profile.fingerprint):
            return memory.learned_need(seen)
        found = self._estimates.get(profile.fingerprint)
        return found or self._estimates.setdefault(profile.fingerprint, estimate_launch(profile, {}, self._box_bytes()))

    def target(self, profile: Profile) -> WeightFacts | None:
        return self._targets.get(profile.fingerprint)

    def most_steps_s(self, profile: Profile) -> float | None:
        """Return the most decode steps per second of one sequence; None until the weights are read."""
        return self._most_steps.get(profile.fingerprint)

    async def read(self, profiles: Iterable[Profile]) -> None:
        estimates, targets, most_steps = await asyncio.to_thread(self._read, list(profiles))
        self._estimates |= estimates
        self._targets |= targets
        self._most_steps |= most_steps

    def _read(
        self, profiles: Iterable[Profile]
    ) -> tuple[dict[str, Need], dict[str, WeightFacts], dict[str, float | None]]:
        box, found, targets, most_steps = self._box_bytes(), {}, {}, {}
        for profile in itertools.chain.from_iterable(one.launches for one in profiles):
            try:
                facts = weights.read_profile_weights(profile, self._hf_home)
                found[profile.fingerprint] = estimate_launch(profile, facts, box)
                if isinstance(target := facts.get("target"), WeightFacts):
                    targets[profile.fingerprint] = target
                    speculation = adapter_of(profile).speculation(profile)
                    most_steps[profile.fingerprint] = most_steps_s(facts, speculation, profile.nodes)
            except Exception:  # an unexpected file must not end the daemon
                LOG.exception("the weights could not be read", profile=profile.name)
        return found, targets, most_steps


Look = Callable[[Profile, Engine, float], Awaitable[EngineSignals]]
"""Gathers the signals of an engine's liveness in a few seconds; the number is by how much the caller was late."""


async def _do_nothing(_profile: str) -> None: ...


async def not_killed(_container: str) -> EngineError | None:
    """No other node has a memory guard."""
    return None


@dataclass(slots=True, kw_only=True)
class Tools:
    """Dependencies of one supervisor. Only `settings` and `catalog` change: when their files were edited."""

    catalog: Catalog
    runtime: Runtime
    upstream: Upstream
    reader: HostReader
    nodes: Nodes
    """Boxes that engines may run on, this one among them."""
    publish: Callable[[Fact], object]
    settings: Settings
    owner: str
    """Value of our containers' owner label."""
    shipper: "NodeShipper | None" = None
    """Copies image and weights to other nodes; None: they are expected to be there."""
    killed_on_node: Callable[[str], Awaitable[EngineError | None]] = not_killed
    """Why another node's memory guard killed a container or its worker; None if none did. Takes seconds at most."""
    store: Store | None = None
    """Without one, records end with the daemon."""
    guard: MemoryGuard | None = None
    canaries: Canaries | None = None
    """Answers of warm-ups; None: they are not compared."""
    clock: Clock = field(default_factory=SystemClock)
    on_needs: Callable[[], object] = lambda: None
    """Called when more is known of what launches need."""
    adapter: Callable[[Profile], EngineAdapter] = adapter_of
    before_ready: Callable[[str], Awaitable[object]] = _do_nothing
    """Called with a profile just before clients may use its engine. Never fails; takes a second at most."""
    foreign: Callable[[], Sequence[Holding]] = tuple
    """Other large holders of the box's memory, largest first; empty if not looked at lately. Answers at once."""
    figures: Callable[[str], EngineFigures | None] | None = None
    """Last raw figures of a profile's engine, answered at once; without this and `look` no engine is judged."""
    gpu_figures: Callable[[], GpuFigures | None] = lambda: None
    look: Look | None = None
    """Set by the supervisor, unless a test sets its own."""
    thresholds: Thresholds = field(default_factory=Thresholds)
    take_evidence: TakeEvidence = no_evidence
    """Keeps what can be seen of an engine that hangs, before it is ended."""
    kernel_log: KernelLog | None = None
    memory_helper: MemoryHelper | None = None
    """Frees and compacts the box's memory as root, where its unit is installed."""

    begun: Begun = field(default_factory=Begun)
    """Stops and starts under way."""
    registry: EngineRegistry = field(init=False)
    logbook: Logbook = field(init=False)
    ports: "Ports" = field(init=False)
    needs: Needs = field(init=False)
    guarded: GuardedEngines = field(init=False)

    def __post_init__(self) -> None:
        runtime, reader, store, clock = self.runtime, self.reader, self.store, self.clock
        self.registry = registry = EngineRegistry(self.publish, clock)
        self.logbook = Logbook(runtime)
        self.ports = Ports(*self.settings.engine_ports, seed=self.owner)
        self.needs = Needs(self._learned_memory, self.settings.hf_home.expanduser(), self._box_bytes)
        self.guarded = GuardedEngines(
            guard=self.guard,
            runtime=runtime,
            reader=reader,
            clock=clock,
            settings=self.settings,
            publish=self.publish,
            store=store,
            registry=registry,
            needs=self.needs,
        )

    def _learned_memory(self, fingerprint: str) -> Footprint | None:
        return self.store.learned.footprint(fingerprint) if self.store else None

    @property
    def reserve_bytes(self) -> int:
        """Bytes that admission keeps free."""
        return int(self.settings.reserve_gib * GIB)

    def _box_bytes(self) -> int | None:
        try:
            return self.reader.memory().total
        except SparkdashError:
            return None


class Ports:
    """Walks round the range: connections of a port just left linger. `seed` keeps two daemons apart."""

    def __init__(self, first: int, last: int, seed: str) -> None:
        self._first = first
        self._count = last - first + 1
        self._next = zlib.crc32(seed.encode()) % self._count if self._count > 0 else 0

    def take(self, given: Collection[int | None] = ()) -> int:
        """Choose the next free port that is not `given` already. Raises HostError `port_in_use`."""
        for left_lately in (False, True):
            for _ in range(self._count):
                port = self._first + self._next
                self._next = (self._next + 1) % self._count
                if port not in given and _free(port, left_lately=left_lately):
                    return port
        raise HostError(
            f"Every port from {self._first} to {self._first + self._count - 1} on 127.0.0.1 is taken.",
            code="port_in_use",
            hint="`ss -ltnp` names the programs; or set `engine_ports` in config.toml to another range.",
        )


def _free(port: int, *, left_lately: bool) -> bool:
    """Whether an engine can have the port. `left_lately`: also one with connections in TIME_WAIT, as engines may.

    Such a look does not see an engine of another daemon that has bound the port and listens once it has loaded.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, left_lately)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                return False
            raise
        return True
