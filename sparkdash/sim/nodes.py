"""Simulated nodes: a second Spark beside the simulated one, with its own memory and GPU, and the link between them.

Rule: nothing is measured; the host name, the driver and the runtime say "simulated".
"""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from sparkdash.domain.container import ContainerInfo, ContainerSpec, Leftovers
from sparkdash.domain.event import NodesChanged
from sparkdash.domain.metric import LinkSample, Memory, NodeSample
from sparkdash.domain.node import LOCAL, Link, NodeFacts, NodeLaunch, NodeState, NodeStatus
from sparkdash.errors import HostError
from sparkdash.host.processes.process import Process
from sparkdash.host.runtime import Runtime
from sparkdash.nodes.cluster.cluster_runtime import ClusterRuntime
from sparkdash.nodes.cluster.removal import PendingRemovals
from sparkdash.sim.box import SimBox
from sparkdash.sim.process import FOLDER_VARIABLE, HEAD_FOLDER_VARIABLE

INTERFACE, HCA = "enp1s0f1np1", "rocep1s0f1"
"""Names of the first QSFP port of a Spark and of its RDMA device."""
ADDRESSES = "192.168.100.{}"
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
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._boxes = {LOCAL: local, **others}
        self._runtimes = dict(runtimes)
        self._folder = folder
        self._reserve = reserve
        self._clock = clock
        self._states = {name: self._first(name) for name in others}
        self._samples: dict[str, NodeSample] = {}
        self._read_at = -math.inf
        self._last_links: dict[str, tuple[LinkSample, float]] = {}
        self._returned: list[Callable[[str], None]] = []
        self.on_change: Callable[[dict[str, NodeState]], object] = lambda _: None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._boxes)

    @property
    def states(self) -> Mapping[str, NodeState]:
        return self._states

    @property
    def samples(self) -> Mapping[str, NodeSample]:
        """Figures of the other nodes, a silent one's as they were, and of the link of LOCAL."""
        now = self._clock()
        if not 0 <= now - self._read_at < SAME_S:
            self._read_at = now
            self._samples |= {name: self._sample(name, now) for name in self._states if self._is_up(name)}
            self._samples[LOCAL] = NodeSample(at=now, links=self._links(now))
        return self._samples

    def memory(self, node: str) -> Memory | None:
        if node == LOCAL:
            return self._boxes[LOCAL].memory()
        sample = self.samples.get(node) if self._is_up(node) else None
        return sample.memory if sample else None

    async def fresh_memory(self, node: str) -> Memory:
        self._refuse(node)
        return self._boxes[node].memory().replace(reserve=self._reserve)

    def launch_on(self, names: tuple[str, ...]) -> tuple[NodeLaunch, ...]:
        for name in names:
            self._refuse(name)
        if names == (LOCAL,):
            return ()
        several = len(names) > 1
        return tuple(
            NodeLaunch(
                name=name,
                address=self._address(name) if several else "127.0.0.1",
                hf_home=str(self._folder / "hf"),
                cache_dir=str(self._folder / "cache"),
                link=self._link(name) if several else None,
            )
            for name in names
        )

    def reachable(self, name: str) -> bool:
        return name in self._states and self._is_up(name)

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
        """Have `called` be told the name of each node that can be reached again."""
        self._returned.append(called)

    def change(self, name: str, status: NodeStatus, reason: str | None = None) -> None:
        before = self._states[name]
        self._states[name] = before.replace(status=status, since=self._clock(), reason=reason)
        self._read_at = -math.inf
        self.on_change(dict(self._states))
        if status is NodeStatus.REACHABLE and before.status is not status:
            for called in self._returned:
                called(name)

    def set_pending(self, name: str, containers: tuple[str, ...]) -> None:
        if self._states[name].owed != containers:
            self._states[name] = self._states[name].replace(owed=containers)
            self.on_change(dict(self._states))

    def _is_up(self, name: str) -> bool:
        return name == LOCAL or self._states[name].status is NodeStatus.REACHABLE

    def _refuse(self, name: str) -> None:
        if name not in self._boxes:
            raise HostError(f"There is no node {name}.", code="node_unknown")
        if not self._is_up(name):
            raise HostError(
                f"{name} cannot be reached: it is simulated as {self._states[name].status}.", code="node_unreachable"
            )

    def _first(self, name: str) -> NodeState:
        facts = NodeFacts(
            hostname=f"{name} (simulated)", arch="aarch64", home="/home/simulated", uid=1000,
            runtime_version="simulated", driver="simulated", kernel="simulated", clock_offset_s=0.0,
            links=(self._link(name),),
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
        up = any(map(self._is_up, self._states))
        tcp = IDLE_BYTES_S if up else 0.0
        rdma = rate if up else 0.0
        return (
            self._carried(LinkSample(name=HCA, rdma=True, received_bytes_s=rdma, sent_bytes_s=rdma * 0.97,
                                     errors=0, up=up, rate_gbit_s=RATE_GBIT_S), now),
            self._carried(LinkSample(name=INTERFACE, received_bytes_s=tcp, sent_bytes_s=tcp,
                                     errors=0, up=up, rate_gbit_s=RATE_GBIT_S), now),
        )  # fmt: skip

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

    def _address(self, name: str) -> str:
        return ADDRESSES.format(10 + list(self._boxes).index(name))

    def _link(self, name: str) -> Link:
        return Link(
            interface=INTERFACE, address=self._address(name), prefix=24, mtu=9000, rate_gbit_s=RATE_GBIT_S, up=True,
            hca=HCA, gid_index=3,
        )  # fmt: skip


class NodeProcess(Process):
    """Runtime of one simulated box. `claims` is the box's folder of claims, `head_claims` the one of the box that
    serves.
    """

    def __init__(self, folder: Path, claims: Path, head_claims: Path) -> None:
        super().__init__(folder)
        self._env = {FOLDER_VARIABLE: str(claims), HEAD_FOLDER_VARIABLE: str(head_claims)}

    async def start(self, spec: ContainerSpec) -> ContainerInfo:
        """Start a process that claims memory on this box. See Process."""
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


def several_boxes(folder: Path, count: int, *, owner: str, reserve: int) -> SimulatedBoxes:
    """Return the parts of this box and of spark2, spark3 and so on. `reserve`: bytes kept free on each."""
    here, local = _runtime(folder, ""), SimBox(folder / CLAIMS)
    runtimes = {name: _runtime(folder, f"-{name}") for name in (f"spark{number}" for number in range(2, count + 1))}
    others = {name: SimBox(folder / f"{CLAIMS}-{name}") for name in runtimes}
    nodes = SimulatedNodes(local, others, runtimes, folder=folder, reserve=reserve)

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
