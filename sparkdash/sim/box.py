"""Simulated boxes: a DGX Spark for the demo and for tests, and a second one beside it, with the link between them.

Nothing is measured, and the names of GPU, host and runtime say "simulated". Two effects are modelled because
sparkdash must handle them: memory comes back some time after a process has ended (on real boxes a minute and more),
and weights pass through the page cache.
"""

import math
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from sparkdash.domain.cluster import Cables, Topology
from sparkdash.domain.container import ContainerInfo, ContainerSpec, Leftovers
from sparkdash.domain.event import NodesChanged
from sparkdash.domain.memory import GpuMemory, Holder, Holding, MemoryAccount
from sparkdash.domain.metric import Gpu, LinkSample, Memory, NodeSample
from sparkdash.domain.node import LOCAL, Link, NodeFacts, NodeLaunch, NodeState, NodeStatus
from sparkdash.errors import HostError
from sparkdash.host.box import GpuReading
from sparkdash.host.processes.process import Process
from sparkdash.host.runtime import Runtime
from sparkdash.nodes.cluster.cluster_runtime import ClusterRuntime
from sparkdash.nodes.cluster.removal import PendingRemovals
from sparkdash.nodes.shared_links import cable_ends, common_links, find_cables
from sparkdash.sim.process import FOLDER_VARIABLE, HEAD_FOLDER_VARIABLE, MemoryClaim, read_claims
from sparkdash.units import GIB

TOTAL = 127_600_748 * 1024
"""MemTotal of a GB10 as an owner's issue reports it (XuehaiPan/nvitop PR 208): 121.69 GiB."""
OTHER = int(6.2 * GIB)
"""Memory of everything else: desktop, daemons, sparkdash. Invented."""
CACHE = 5 * GIB
"""Page cache of an idle box; invented. A share of every loaded engine's weights joins it."""
CACHE_SHARE = 0.15
MIN_FREE = GIB
SWAP = 16 * GIB
"""Size of swap on stock DGX OS."""
RELEASE_S = 4.0
"""Delay until an ended engine's memory is free again; real boxes take up to minutes."""
IDLE_W, LOAD_W = 5.0, 61.0
"""GPU power; owners report 3-12 W idle and 50-95 W under load."""
IDLE_C, LOAD_C = 41.0, 73.0
IDLE_MHZ, FULL_MHZ, HIGHEST_MHZ = 208.0, 2405.0, 3003.0
"""Clock without and under load, and the highest that the driver names."""


class SimBox:
    """Adds up the claims in `folder`. One reader per box; `clock` gives monotonic seconds."""

    def __init__(self, folder: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder = folder
        self._clock = clock
        self._alive: dict[int, MemoryClaim] = {}
        self._gone: dict[int, tuple[int, float]] = {}
        """Memory that ended processes still hold, by pid, and since when."""
        self._cached = 0.0

    def memory(self) -> Memory:
        self._look()
        used = OTHER + sum(claim.memory for claim in self._alive.values()) + self._lingering()
        room = max(0, TOTAL - used)
        cache = int(min(CACHE + self._cached, max(0, room - MIN_FREE)))
        swapped = max(0, used - TOTAL)
        available = max(0, room - MIN_FREE // 2)
        pressure = round(max(0.0, 1.0 - available / (4 * GIB)) * 0.6, 3)  # none above 4 GiB available
        return Memory(
            total=TOTAL, available=available, free=room - cache, page_cache=cache,
            swap_total=SWAP, swap_used=min(SWAP, swapped), pressure=pressure,
        )  # fmt: skip

    async def account(self) -> MemoryAccount:
        """Return who holds the memory: the engines, what ended ones still hold, the rest."""
        memory = self.memory()
        cache = memory.page_cache or 0
        engines = [
            Holding(
                kind=Holder.ENGINE, name=claim.profile, bytes=claim.memory, gpu_bytes=claim.memory, pid=claim.pid,
                what="simulated engine", remedy=f"sparkdash stop {claim.profile}",
            )
            for claim in sorted(self._alive.values(), key=lambda claim: -claim.memory)
        ]  # fmt: skip
        lingering = min(self._lingering(), memory.total - memory.free - cache - sum(one.bytes for one in engines))
        held = sum(one.bytes for one in engines) + lingering + cache + memory.free
        rest = (
            Holding(kind=Holder.KERNEL, name="ended engines", bytes=lingering, what="given back within seconds"),
            Holding(kind=Holder.UNSEEN, name="other programs", bytes=memory.total - held, what="simulated"),
            Holding(kind=Holder.CACHE, name="page cache", bytes=cache, what="files; given back when needed"),
            Holding(kind=Holder.FREE, name="free", bytes=memory.free),
        )
        holdings = (*engines, *(one for one in rest if one.bytes > 0))
        notes = ("Simulated: nothing of it was measured.",)
        return MemoryAccount(
            at=time.time(), total=memory.total, available=memory.available, holdings=holdings, gpu=GpuMemory.UNIFIED,
            gpu_told=True, swap_total=memory.swap_total, swap_used=memory.swap_used, notes=notes,
        )  # fmt: skip

    def contiguity(self) -> None:
        pass

    async def gpu(self) -> GpuReading:
        return GpuReading(self.gpu_now(), {claim.pid: claim.memory for claim in self._alive.values()})

    def engines(self) -> dict[str, int | None]:
        """Return the memory of each profile's processes, as last looked at."""
        held: dict[str, int | None] = {}
        for claim in self._alive.values():
            held[claim.profile] = (held.get(claim.profile) or 0) + claim.memory
        return held

    def busy(self) -> dict[str, float]:
        """Return each profile's share of the GPU's time, 0..1, as last looked at."""
        return {claim.profile: claim.busy for claim in self._alive.values()}

    def gpu_now(self) -> Gpu:
        """Return GPU use: the engines' busy shares added up, and figures that follow from them."""
        self._look()
        busy = min(1.0, sum(claim.busy for claim in self._alive.values()))
        return Gpu(
            name="GB10 (simulated)", driver="simulated", utilization=busy,
            power_w=round(IDLE_W + busy * (LOAD_W - IDLE_W + 1.5 * math.sin(self._clock())), 1),
            temperature_c=round(IDLE_C + busy * (LOAD_C - IDLE_C)),
            sm_clock_mhz=FULL_MHZ if busy else IDLE_MHZ,
            sm_clock_max_mhz=HIGHEST_MHZ,
        )  # fmt: skip

    def engine_bytes(self, pids: set[int], reading: GpuReading) -> int | None:
        held = [size for pid, size in (reading.processes or {}).items() if pid in pids]
        return sum(held) if held else None

    async def others_bytes(self, pids: set[int], reading: GpuReading) -> int:
        return sum(size for pid, size in (reading.processes or {}).items() if pid not in pids)

    def _look(self) -> None:
        """Read the claims. Memory that disappeared since the last look begins to come back."""
        now, before = self._clock(), self._alive
        self._alive = {claim.pid: claim for claim in read_claims(self._folder)}
        for pid in before.keys() - self._alive.keys():
            self._gone[pid] = (before[pid].memory, now)
        for pid in [pid for pid, (_, since) in self._gone.items() if now - since >= RELEASE_S]:
            del self._gone[pid]
        largest = max((claim.memory for claim in self._alive.values()), default=0)
        self._cached = max(self._cached, CACHE_SHARE * largest)

    def _lingering(self) -> int:
        """Return memory not yet released: all of it for half the time, then evenly less."""
        total = 0.0
        for memory, since in self._gone.values():
            share = (self._clock() - since) / RELEASE_S
            total += memory * min(1.0, 2 * (1 - share))
        return int(total)


INTERFACE, HCA = "enp1s0f1np1", "rocep1s0f1"
"""Names of the outer QSFP port of a Spark and of its RDMA device; the inner one ends in f0np0 and f0."""
MANAGEMENT = "enP7s7"
"""Name of the 10 GbE port, by which the boxes of a ring find each other."""
ADDRESSES = "192.168.{}.{}"
COMMON = 100
"""Number of the network of a switch; the cable behind box N of a ring has COMMON + N."""
RATE_GBIT_S = 200.0
SHARED_BYTES_S = 390e6
"""Traffic of a busy engine over two boxes, one direction: 3.1 Gb/s. Invented, in the size of tensor parallel 2."""
IDLE_BYTES_S = 3000.0
"""Traffic of two idle boxes: ssh and the clocks."""
SAME_S = 0.5
"""Figures are read again after this time."""


class SimulatedNodes:
    """Other nodes by name, each with its box, beside the local one. `runtimes`: theirs, by name.

    `on_change` is called with all states after each change. Implements `Nodes` and the runtimes' protocol.
    """

    def __init__(
        self,
        local: SimBox,
        others: Mapping[str, SimBox],
        runtimes: Mapping[str, Runtime],
        *,
        folder: Path,
        reserve: int = 0,
        topology: Topology = Topology.SWITCH,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._topology = topology
        self._boxes = {LOCAL: local, **others}
        self._runtimes = dict(runtimes)
        self._folder = folder
        self._reserve = reserve
        self._clock = clock
        self._states = {name: self._first(name) for name in others}
        self._samples: dict[str, NodeSample] = {}
        self._read_at = -math.inf
        self._last_links: dict[str, tuple[LinkSample, float]] = {}
        self.on_change: Callable[[dict[str, NodeState]], object] = lambda _: None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._boxes)

    @property
    def states(self) -> Mapping[str, NodeState]:
        return self._states

    @property
    def samples(self) -> Mapping[str, NodeSample]:
        """Figures of the other nodes, and of the link of LOCAL."""
        now = self._clock()
        if not 0 <= now - self._read_at < SAME_S:
            self._read_at = now
            self._samples |= {name: self._sample(name, now) for name in self._states}
            self._samples[LOCAL] = NodeSample(at=now, links=self._links(now))
        return self._samples

    def memory(self, node: str) -> Memory | None:
        if node == LOCAL:
            return self._boxes[LOCAL].memory()
        sample = self.samples.get(node)
        return sample.memory if sample else None

    async def fresh_memory(self, node: str) -> Memory:
        self._refuse(node)
        return self._boxes[node].memory().replace(reserve=self._reserve)

    def launch_on(self, names: tuple[str, ...]) -> tuple[NodeLaunch, ...]:
        for name in names:
            self._refuse(name)
        if names == (LOCAL,):
            return ()
        offered = [self._offered(name) for name in names]
        links = common_links(offered) if len(names) > 1 else None
        ends = cable_ends(names, offered, self.cables) if len(names) > 2 and self.cables else [{}] * len(names)
        return tuple(
            NodeLaunch(
                name=name,
                address=str(links[place].address) if links else "127.0.0.1",
                hf_home=str(self._folder / "hf"),
                cache_dir=str(self._folder / "cache"),
                link=links[place] if links else None,
                cables=ends[place],
            )
            for place, name in enumerate(names)
        )

    @property
    def cables(self) -> Cables:
        offered = {name: self._offered(name) for name in self._boxes}
        return find_cables(offered, self._topology) if len(offered) > 2 else {}

    def reachable(self, name: str) -> bool:
        return name in self._states

    async def first_tries(self, limit_s: float) -> None:
        pass

    def runtime(self, name: str) -> Runtime:
        self._refuse(name)
        return self._runtimes[name]

    async def forward(self, name: str, port: int) -> None:  # noqa: ARG002 - the protocol's
        self._refuse(name)

    async def cancel_forward(self, name: str, port: int) -> None:
        pass

    def on_return(self, called: Callable[[str], None]) -> None:
        """Call nobody: no simulated node is ever away."""

    def set_pending(self, name: str, containers: tuple[str, ...]) -> None:
        if self._states[name].owed != containers:
            self._states[name] = self._states[name].replace(owed=containers)
            self.on_change(dict(self._states))

    def _refuse(self, name: str) -> None:
        if name not in self._boxes:
            raise HostError(f"There is no node {name}.", code="node_unknown")

    def _first(self, name: str) -> NodeState:
        facts = NodeFacts(
            hostname=f"{name} (simulated)", arch="aarch64", home="/home/simulated", uid=1000,
            runtime_version="simulated", driver="simulated", kernel="simulated", clock_offset_s=0.0,
            links=tuple(self._offered(name)),
        )  # fmt: skip
        return NodeState(name=name, status=NodeStatus.REACHABLE, since=self._clock(), facts=facts, link=INTERFACE)

    def _sample(self, name: str, now: float) -> NodeSample:
        box = self._boxes[name]
        memory = box.memory().replace(engines=box.engines(), reserve=self._reserve)
        return NodeSample(at=now, memory=memory, gpu=box.gpu_now())

    def _links(self, now: float) -> tuple[LinkSample, ...]:
        """Traffic of this box: an engine that is on several boxes fills the link in proportion to its work."""
        elsewhere = {name for node in self._states for name in self._boxes[node].engines()}
        shared = sum(busy for name, busy in self._boxes[LOCAL].busy().items() if name in elsewhere)
        rate = SHARED_BYTES_S * min(1.0, shared) * (1 + 0.04 * math.sin(now))
        rdma = LinkSample(name=HCA, rdma=True, received_bytes_s=rate, sent_bytes_s=rate * 0.97)
        tcp = LinkSample(name=INTERFACE, received_bytes_s=IDLE_BYTES_S, sent_bytes_s=IDLE_BYTES_S)
        links = (link.replace(errors=0, up=True, rate_gbit_s=RATE_GBIT_S) for link in (rdma, tcp))
        return tuple(self._carried(link, now) for link in links)

    def _carried(self, link: LinkSample, now: float) -> LinkSample:
        """Return the link with the bytes that it has carried at these rates since its first sample."""
        before, then = self._last_links.get(link.name, (link, now))
        seconds = max(0.0, now - then)
        counted = link.replace(
            received_bytes=(before.received_bytes or 0) + round((link.received_bytes_s or 0.0) * seconds),
            sent_bytes=(before.sent_bytes or 0) + round((link.sent_bytes_s or 0.0) * seconds),
        )
        self._last_links[link.name] = counted, now
        return counted

    def _offered(self, name: str) -> list[Link]:
        """Return the box's links: to the switch, or to the next box, to the one before, and the slow one."""
        place, count = list(self._boxes).index(name), len(self._boxes)
        port = Link(interface=INTERFACE, prefix=24, mtu=9000, rate_gbit_s=RATE_GBIT_S, up=True, hca=HCA, gid_index=3)
        if self._topology in (Topology.SWITCH, Topology.DIRECT):
            return [_numbered(port, COMMON, place)]
        inner = port.replace(interface=INTERFACE.replace("f1np1", "f0np0"), hca=HCA.replace("f1", "f0"))
        ends = [_numbered(port, COMMON + 1 + place, place), _numbered(inner, COMMON + 1 + (place - 1) % count, place)]
        if self._topology is Topology.LINE:
            ends = [end for end in ends if end.address != ADDRESSES.format(COMMON + count, 10 + place)]
        slow = Link(interface=MANAGEMENT, prefix=24, mtu=1500, rate_gbit_s=10.0, up=True)
        return [*ends, _numbered(slow, COMMON, place)]


def _numbered(link: Link, network: int, place: int) -> Link:
    return link.replace(address=ADDRESSES.format(network, 10 + place))


class NodeProcess(Process):
    """Runtime of one simulated box: folders of its claims, and of those of the box that serves."""

    def __init__(self, folder: Path, claims: Path, head_claims: Path) -> None:
        super().__init__(folder)
        self._env = {FOLDER_VARIABLE: str(claims), HEAD_FOLDER_VARIABLE: str(head_claims)}

    async def start(self, spec: ContainerSpec) -> ContainerInfo:
        return await super().start(spec.replace(env={**spec.env, **self._env}))

    async def settle(self, owner: str) -> Leftovers:  # noqa: ARG002 - the protocol's
        """End nothing: the owner's processes without a record here run on the other simulated boxes."""
        return Leftovers()


CLAIMS, RECORDS = "sim", "processes"
"""Folders of this box's claims and processes; another box's have its name behind a dash."""
SILENT_S = 10.0
"""Time that a simulated node may be silent until its engines are lost."""

Publish = Callable[[NodesChanged], object]


class SimulatedBoxes(NamedTuple):
    """Parts of a daemon on simulated boxes."""

    runtime: Runtime
    reader: SimBox
    processes: tuple[Process, ...]
    nodes: SimulatedNodes | None = None
    attend: Callable[[Publish], Awaitable[None]] | None = None
    """Tells the states of the nodes and ends there what waits for removal, until cancelled; None with one box."""


def one_box(folder: Path) -> SimulatedBoxes:
    """Return the parts of one simulated box, whose engines find its folder in the environment."""
    runtime = Process(folder / RECORDS)
    return SimulatedBoxes(runtime, SimBox(folder / CLAIMS), (runtime,))


def several_boxes(
    folder: Path, count: int, *, owner: str, reserve: int, topology: Topology = Topology.SWITCH
) -> SimulatedBoxes:
    """Return the parts of this box and of spark2, spark3 and so on. `reserve`: bytes kept free on each."""
    here, local = _runtime(folder, ""), SimBox(folder / CLAIMS)
    runtimes = {name: _runtime(folder, f"-{name}") for name in (f"spark{number}" for number in range(2, count + 1))}
    others = {name: SimBox(folder / f"{CLAIMS}-{name}") for name in runtimes}
    nodes = SimulatedNodes(local, others, runtimes, folder=folder, reserve=reserve, topology=topology)

    def tell_pending() -> None:
        for name in others:
            nodes.set_pending(name, pending.containers(name))

    pending = PendingRemovals(folder / "owed.json", tell_pending)
    runtime = ClusterRuntime(here, nodes, owner=owner, pending=pending, silent_s=lambda: SILENT_S)

    async def attend(publish: Publish) -> None:
        nodes.on_change = lambda states: publish(NodesChanged(nodes=states))
        nodes.on_change(dict(nodes.states))
        await runtime.upkeep.run()

    processes = (here, *runtimes.values())
    return SimulatedBoxes(runtime, local, processes, nodes, attend)


def left_runtimes(folder: Path) -> list[Process]:
    """Return the runtimes of all boxes whose processes have records in `folder`."""
    return [Process(records) for records in sorted(folder.glob(f"{RECORDS}*"))]


def _runtime(folder: Path, box: str) -> NodeProcess:
    return NodeProcess(folder / f"{RECORDS}{box}", folder / f"{CLAIMS}{box}", folder / CLAIMS)
