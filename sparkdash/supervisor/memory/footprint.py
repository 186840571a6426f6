"""Footprint: memory that a launch takes, measured while it comes up.

Two figures are taken, and each covers the other's blind spot:
* what the engine's own processes hold: not disturbed by others, and blind to memory that no process shows (page-locked
  host memory, the driver's tables); without NVML's figures it is half of the truth, and not used for an engine on the
  GPU;
* by how much MemAvailable fell, less what all other processes took meanwhile: sees everything, and also what the kernel
  itself took or gave back, so it is believed over the first only when it is larger by more than UNSEEN, and never for
  an engine without a GPU, which has no such memory. Page cache does not count in either: see `domain.footprint`.

Walking all processes takes time, in which a busy box moves memory: what moved is noise in both of two readings. Of
another node only the fall is seen, and it is an engine's only where nothing else of ours was on the node. An engine on
several nodes needs on each what it took of the one where it took most.

Rule: a figure that may be another engine's is not learned from. A load is weighed in the background and never waits.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from sparkdash.domain.engine import Engine, EngineState
from sparkdash.domain.memory import Measure, Weighing
from sparkdash.domain.metric import Memory
from sparkdash.domain.node import LOCAL, NodeStatus
from sparkdash.domain.profile import Profile
from sparkdash.errors import HostError, SparkdashError
from sparkdash.log import LOG
from sparkdash.supervisor.tools import Tools
from sparkdash.units import GIB, MIB, duration, gib, natural

READ_S = 5.0
LATE_S = 30.0
AGAIN_S = 1.0


async def read_memory(tools: Tools, node: str) -> Memory:
    """Read the node's memory; another node may answer late. Raises HostError: memory_unknown, node_unreachable."""
    if node == LOCAL:
        return tools.reader.memory()
    until = tools.clock.monotonic() + LATE_S
    while True:
        try:
            return await _ask(tools, node)
        except HostError as error:
            state = tools.nodes.states.get(node)
            reachable = state is not None and state.status is NodeStatus.REACHABLE
            if error.code != "node_unreachable" or not reachable or tools.clock.monotonic() >= until:
                raise
        await tools.clock.sleep(AGAIN_S)


async def _ask(tools: Tools, node: str) -> Memory:
    try:
        async with asyncio.timeout(READ_S):
            return await tools.nodes.fresh_memory(node)
    except TimeoutError as error:
        raise HostError(
            f"{node} did not tell its memory within {duration(READ_S)}.",
            code="node_unreachable",
            hint="`sparkdash nodes` shows the state of each node.",
        ) from error


def last_memory(tools: Tools, node: str) -> Memory | None:
    """Return the node's memory as known now, without asking it; None while it is silent or cannot be read."""
    if node != LOCAL:
        return tools.nodes.memory(node)
    with suppress(SparkdashError):
        return tools.reader.memory()
    return None


def on_node(node: str) -> str:
    """Word that a figure is another node's: " on spark2"; empty for this box."""
    return "" if node == LOCAL else f" on {node}"


CAME_BACK = 256 * MIB
"""Available memory that rises by more than this while an engine loads was somebody else's."""


@dataclass(frozen=True, slots=True)
class NodeWeight:
    """Memory that an engine holds on one node, in bytes; None is unknown, not zero."""

    steady: int | None
    peak: int | None
    measure: Measure | None
    spoilt: str | None
    """Reason why nothing may be learned from the figures, in words."""


def largest_figures(weights: Sequence[NodeWeight]) -> tuple[int | None, int | None]:
    """Return the largest steady and peak figure over an engine's nodes; None while one node's are unknown."""
    steady = [each.steady for each in weights if each.steady is not None]
    if len(steady) < len(weights):
        return None, None
    return max(steady), max(each.peak for each in weights if each.peak is not None)


class NodeMeter:
    """Weighs one bring-up on another node: `before` the start, `note` while it loads, `after` once it is ready."""

    def __init__(self, tools: Tools, profile: str, node: str) -> None:
        self._tools = tools
        self._profile = profile
        self._node = node
        self._beside: set[str] = set()
        """Other engines of ours that were on the node."""
        self._zero: int | None = None
        self._lowest: int | None = None
        self._highest = 0

    async def before(self) -> int | None:
        """Read the node's available memory before the start; None where that fails, and nothing is learned then."""
        self._zero = await self._look()
        return self._zero

    def note(self, available: int) -> None:
        self._meet_neighbours()
        self._lowest = available if self._lowest is None else min(self._lowest, available)
        self._highest = max(self._highest, available)

    async def after(self) -> NodeWeight | None:
        if self._zero is None:
            return None
        now = await self._look()
        if now is None or now >= self._zero:
            return NodeWeight(None, None, None, None)
        lowest = now if self._lowest is None else min(now, self._lowest)
        return NodeWeight(self._zero - now, self._zero - lowest, Measure.AVAILABLE, self._spoilt(self._zero))

    async def _look(self) -> int | None:
        self._meet_neighbours()
        with suppress(SparkdashError):
            return (await read_memory(self._tools, self._node)).available
        return None

    def _meet_neighbours(self) -> None:
        engines = self._tools.registry.engines.values()
        there = [each for each in engines if each.container and each.state is not EngineState.FAILED]
        self._beside.update(e.profile for e in there if self._node in e.nodes and e.profile != self._profile)

    def _spoilt(self, then: int) -> str | None:
        if self._beside:
            names = ", ".join(sorted(self._beside, key=natural))
            return f"{names} ran on {self._node} too, and whose memory is whose is not seen there"
        if self._highest > then + CAME_BACK:
            return f"memory of an engine that had left came back meanwhile on {self._node}"
        return None


UNSEEN = GIB
"""Fall of MemAvailable beyond the processes' figure that is believed; less is the box's own noise."""


@dataclass(frozen=True, slots=True)
class MemoryReading:
    """Memory of the box at one moment, in bytes."""

    available: int
    own: int | None
    others: int
    beside: frozenset[tuple[str, str | None]]
    blind: bool
    """Whether another engine is on the GPU, and the driver does not tell whose memory is whose."""
    moved: int = 0
    """Bytes by which available memory changed while the other processes were read."""


class FootprintMeter:
    """Weighs one bring-up on its nodes: `before` the start, `note` while it loads, `after` once it is ready."""

    def __init__(self, tools: Tools, profile: Profile, nodes: tuple[str, ...] = (LOCAL,)) -> None:
        self.profile = profile
        self._tools = tools
        self._nodes = nodes
        self._node_meters = {node: NodeMeter(tools, profile.name, node) for node in nodes if node != LOCAL}
        self._began_with: int | None = None
        """Available memory of the serving node before the start."""
        self._zero: MemoryReading | None = None
        self._lowest: int | None = None
        self._highest = 0
        self._beside: set[str] = set()

    async def before(self) -> None:
        """Measure the nodes before the start. A failed reading stops no start: nothing is learned then."""
        if LOCAL in self._nodes:
            with suppress(SparkdashError):
                self._zero = await self._look(None)
        found = {node: await meter.before() for node, meter in self._node_meters.items()}
        self._began_with = found.get(self._nodes[0], self._zero.available if self._zero else None)

    def note(self, available: int, node: str = LOCAL) -> int:
        """Add a sample of the load; return this load's share, 0 once another engine loads too."""
        if node in self._node_meters:
            self._node_meters[node].note(available)
        else:
            self._lowest = available if self._lowest is None else min(self._lowest, available)
            self._highest = max(self._highest, available)
        if node in (LOCAL, self._nodes[0]):
            self._beside.update(e.profile for e in self._tools.registry.loading(but=self.profile.name, on=(node,)))
        if self._beside or node != self._nodes[0]:
            return 0
        return (available if self._began_with is None else self._began_with) - available

    async def after(self, id_: str, engine: Engine) -> Weighing | None:
        """Measure the ready engine; None without a reading before the start. `id_` is the swap's."""
        found = [await self._weigh_here(engine)] if LOCAL in self._nodes else []
        found += [await meter.after() for meter in self._node_meters.values()]
        weights = [each for each in found if each is not None]
        if len(weights) < len(self._nodes):
            return None
        most = max(weights, key=lambda each: each.steady or 0)
        steady, peak = largest_figures(weights)
        return Weighing(
            id=id_,
            at=engine.ready_at or self._tools.clock.now(),
            measure=most.measure,
            steady_bytes=steady,
            peak_bytes=peak,
            spoilt=next(filter(None, (each.spoilt for each in weights)), None),
        )

    async def _weigh_here(self, engine: Engine) -> NodeWeight | None:
        if (zero := self._zero) is None:
            return None
        now = await self._look(engine)
        steady, measure = held_memory(zero, now, gpu=self.profile.gpu)
        dip = max(0, now.available - self._lowest) if self._lowest is not None else 0
        peak = None if steady is None else steady + dip
        return NodeWeight(steady, peak, measure, self._spoilt(zero, now, measure))

    def _spoilt(self, zero: MemoryReading, now: MemoryReading, measure: Measure | None) -> str | None:
        if self._beside:  # the peak shows in MemAvailable only, which the other load moves too
            return f"{', '.join(sorted(self._beside))} loaded at the same time"
        return None if measure is Measure.PROCESSES else why_spoilt(zero, now, self._highest)

    async def _look(self, engine: Engine | None) -> MemoryReading:
        tools, container = self._tools, engine.container if engine else None
        reading = await tools.reader.gpu()
        pids = await tools.runtime.pids(container) if container else set()
        told = reading.processes or {}
        whole = not self.profile.gpu or not pids.isdisjoint(told)
        beside = self._neighbours()
        own = tools.reader.engine_bytes(pids, reading) if pids and whole else None
        began = tools.reader.memory().available
        others = await tools.reader.others_bytes(pids, reading)
        ended = tools.reader.memory().available
        return MemoryReading(
            available=(began + ended) // 2,
            own=own,
            others=others,
            beside=frozenset((e.profile, e.container) for e in beside),
            blind=reading.processes is None and any(map(self._is_on_gpu, beside)),
            moved=abs(ended - began),
        )

    def _neighbours(self) -> list[Engine]:
        engines = self._tools.registry.engines.values()
        return [e for e in engines if e.profile != self.profile.name and _holds(e) and LOCAL in e.nodes]

    def _is_on_gpu(self, engine: Engine) -> bool:
        started = self._tools.registry.started.get(engine.profile)
        return started is None or started.gpu


async def weigh(tools: Tools, scale: FootprintMeter, id_: str, engine: Engine) -> None:
    """Weigh an engine that came up by the swap `id_`, and keep the result in the store. Never fails."""
    with _harmless(engine.profile):
        seen = await scale.after(id_, engine)
        if seen and tools.store and _still_runs(tools, engine):  # one that was stopped meanwhile held less and less
            tools.store.record_load(seen, engine.profile, engine.fingerprint)
            tools.on_needs()


def _still_runs(tools: Tools, engine: Engine) -> bool:
    now = tools.registry.engines.get(engine.profile)
    if now is None or not now.state.is_serving:
        return False
    return (now.ready_at, now.container) == (engine.ready_at, engine.container)


@contextmanager
def _harmless(profile: str) -> Iterator[None]:
    """An engine that could not be weighed serves all the same."""
    try:
        yield
    except SparkdashError as error:
        LOG.info("an engine was not weighed", profile=profile, code=error.code)
    except Exception:
        LOG.exception("an engine was not weighed", profile=profile)


def _holds(engine: Engine) -> bool:
    return engine.container is not None and engine.state not in (EngineState.ABSENT, EngineState.FAILED)


def held_memory(zero: MemoryReading, now: MemoryReading, *, gpu: bool) -> tuple[int | None, Measure | None]:
    fallen = (zero.available - now.available) - (now.others - zero.others)  # less what others took
    noise = UNSEEN + zero.moved + now.moved
    if now.own is not None and (not gpu or fallen <= now.own + noise or now.beside or zero.beside):
        return now.own, Measure.PROCESSES
    return (fallen, Measure.AVAILABLE) if fallen > 0 else (None, None)


def why_spoilt(then: MemoryReading, now: MemoryReading, highest: int) -> str | None:
    """Why the fall of MemAvailable is not this engine's alone; `highest` was available at some time between."""
    if highest > then.available + CAME_BACK:
        return "memory of an engine that had left came back meanwhile"
    if then.beside != now.beside:
        names = ", ".join(sorted({name for name, _ in then.beside ^ now.beside}, key=natural))
        return f"{names} came or went meanwhile"
    if now.blind or then.blind:
        names = ", ".join(sorted((name for name, _ in now.beside), key=natural))
        return f"{names} ran beside it, and the driver does not tell whose memory is whose"
    if (moved := max(then.moved, now.moved)) > UNSEEN:
        return f"{gib(moved)} of the box's memory changed hands while it was read"
    return None
