"""Nodes in memory: a runtime for each, whose containers start, end and fall silent as a test wants."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sparkdash.domain.container import (
    LABEL_FINGERPRINT,
    LABEL_OWNER,
    LABEL_PORT,
    LABEL_PROFILE,
    ContainerInfo,
    ContainerSpec,
    ContainerState,
    Leftovers,
    PullProgress,
)
from sparkdash.domain.node import NodeFacts, NodeState, NodeStatus
from sparkdash.errors import HostError
from sparkdash.nodes.cluster.cluster_runtime import ClusterRuntime
from sparkdash.nodes.cluster.removal import PendingRemovals

OWNER = "me"
FACTS = NodeFacts(hostname="spark2", arch="aarch64", home="/home/lab", uid=1000)
_BIRTHS = itertools.count(1.0)


def silent(node: str) -> HostError:
    return HostError(f"{node} does not answer.", code="node_unreachable")


@dataclass
class Made:
    """One container."""

    spec: ContainerSpec
    state: ContainerState = ContainerState.RUNNING
    code: int | None = None
    log: list[str] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    started_at: float = field(default_factory=lambda: next(_BIRTHS))

    def say(self, line: str) -> None:
        self.log.append(line)
        self.changed.set()

    def end(self, code: int) -> None:
        self.state, self.code = ContainerState.EXITED, code
        self.changed.set()


class NodeInMemory:
    """Runtime of one node."""

    name = "podman"
    containerised = True

    def __init__(self, node: str) -> None:
        self.node = node
        self.here: dict[str, Made] = {}
        self.silent = False
        self.refuses: HostError | None = None
        """Why nothing starts here."""
        self.on_stop: Callable[[], None] = lambda: None
        """Called when a stop begins."""
        self.calls: list[tuple[str, str]] = []
        self.gone_silent = asyncio.Event()

    def _ask(self) -> None:
        if self.silent:
            raise silent(self.node)

    async def version(self) -> str:
        return "5.0"

    async def image_id(self, image: str) -> str | None:
        return image

    async def images(self, names: Collection[str]) -> dict[str, int]:
        return dict.fromkeys(names, 1)

    async def pull(self, image: str) -> AsyncIterator[PullProgress]:
        yield PullProgress(image=image, detail="pulled", done=True)

    async def command(self, spec: ContainerSpec) -> list[str]:
        return list(spec.argv)

    async def check_start(self, spec: ContainerSpec) -> None:
        return None

    async def start(self, spec: ContainerSpec) -> ContainerInfo:
        self._ask()
        self.calls.append(("start", spec.name))
        if self.refuses:
            raise self.refuses
        self.here[spec.name] = Made(spec)
        return self._info(self.here[spec.name])

    async def stop(self, name: str, grace_s: float, before_removal: Awaitable[None] | None = None) -> Leftovers:
        self.on_stop()
        self._ask()
        self.calls.append(("stop", name))
        if name in self.here:
            self.here[name].end(143)
            if before_removal is not None:
                await before_removal
            self.here.pop(name, None)
        return Leftovers()

    async def inspect(self, name: str) -> ContainerInfo | None:
        self._ask()
        return self._info(self.here[name]) if name in self.here else None

    async def containers(self, labels: Mapping[str, str]) -> list[ContainerInfo]:
        self._ask()
        return [
            self._info(made)
            for made in self.here.values()
            if all(value in ("", made.spec.labels.get(key)) for key, value in labels.items())
        ]

    async def settle(self, owner: str) -> Leftovers:
        self._ask()
        self.calls.append(("settle", owner))
        return Leftovers()

    async def logs(self, name: str, *, follow: bool, tail: int | None = None) -> AsyncIterator[str]:
        self._ask()
        if name not in self.here:
            raise HostError(f"There is no container {name}.", code="no_such_container")
        made = self.here[name]
        at = 0 if tail is None else max(0, len(made.log) - tail)
        while True:
            for line in made.log[at:]:
                at += 1
                yield line
            if not follow or made.state is ContainerState.EXITED:
                return
            made.changed.clear()
            await made.changed.wait()
            self._ask()

    async def wait(self, name: str) -> int:
        self._ask()
        if name not in self.here:
            return -1
        made = self.here[name]
        while made.code is None:
            made.changed.clear()
            await made.changed.wait()
            self._ask()
        return made.code

    async def pids(self, name: str) -> set[int]:
        return {int(self.here[name].started_at)} if name in self.here else set()

    def _info(self, made: Made) -> ContainerInfo:
        spec = made.spec
        return ContainerInfo(
            id=f"{self.node}/{spec.name}",
            name=spec.name,
            state=made.state,
            labels=spec.labels,
            exit_code=made.code,
            pid=4711,
            started_at=made.started_at,
        )


class NodesInMemory:
    """Other nodes, all reachable until a test has one fall silent."""

    def __init__(self, *names: str) -> None:
        self.on: dict[str, NodeInMemory] = {name: NodeInMemory(name) for name in names}
        self.status = dict.fromkeys(names, NodeStatus.REACHABLE)
        self.boots = dict.fromkeys(names, "boot-1")
        self.forwarded: set[tuple[str, int]] = set()
        self.no_forward: HostError | None = None
        self._returned: list[Callable[[str], None]] = []

    @property
    def states(self) -> dict[str, NodeState]:
        return {
            name: NodeState(name=name, status=status, since=0.0, facts=FACTS.replace(boot=self.boots.get(name)))
            for name, status in self.status.items()
        }

    def reachable(self, name: str) -> bool:
        return self.status.get(name) is NodeStatus.REACHABLE

    async def first_tries(self, limit_s: float) -> None:
        pass

    def runtime(self, name: str) -> NodeInMemory:
        if name not in self.on:
            raise HostError(f"There is no node {name}.", code="node_unknown")
        if self.status[name] is not NodeStatus.REACHABLE:
            raise silent(name)
        return self.on[name]

    async def forward(self, name: str, port: int) -> None:
        if self.no_forward:
            raise self.no_forward
        self.runtime(name)
        self.forwarded.add((name, port))

    async def cancel_forward(self, name: str, port: int) -> None:
        self.forwarded.discard((name, port))

    def on_return(self, called: Callable[[str], None]) -> None:
        self._returned.append(called)

    def cut(self, name: str, *, seen: bool = True) -> None:
        """The link breaks; `seen`: the connection knows it already."""
        self.on[name].silent = True
        for made in self.on[name].here.values():
            made.changed.set()
        if seen:
            self.status[name] = NodeStatus.UNREACHABLE

    def fix(self, name: str) -> None:
        self.on[name].silent = False
        self.status[name] = NodeStatus.REACHABLE
        for called in self._returned:
            called(name)


def engine_spec(
    name: str = "sparkdash-big", nodes: tuple[str, ...] = ("local", "spark2"), port: int = 18001
) -> ContainerSpec:
    labels = {LABEL_OWNER: OWNER, LABEL_PROFILE: name, LABEL_FINGERPRINT: "f", LABEL_PORT: str(port)}
    head, *others = nodes
    workers = tuple(
        ContainerSpec(name=f"{name}-worker", image="i", argv=("w",), port=port, labels=labels, node=node)
        for node in others
    )
    return ContainerSpec(name=name, image="i", argv=("h",), port=port, labels=labels, node=head, workers=workers)


HEAD, WORKER = "sparkdash-big", "sparkdash-big-worker"
LIMIT_S = 20.0
OURS = {LABEL_OWNER: OWNER}


@dataclass
class Cluster:
    """Our box and two others."""

    folder: Path
    local: NodeInMemory
    nodes: NodesInMemory
    runtime: ClusterRuntime
    pending: PendingRemovals
    swept: list[str]

    def restarted(self) -> "Cluster":
        """A daemon that comes after this one, with nothing but the files and the containers."""
        return cluster_in(self.folder, self.local, self.nodes)

    @property
    def b(self) -> NodeInMemory:
        return self.nodes.on["spark2"]

    @contextlib.asynccontextmanager
    async def kept_up(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.runtime.upkeep.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def cluster_in(folder: Path, local: NodeInMemory, nodes: NodesInMemory) -> Cluster:
    pending = PendingRemovals(folder / "owed.json")
    runtime = ClusterRuntime(local, nodes, owner=OWNER, pending=pending, silent_s=lambda: 0.2)
    swept: list[str] = []
    runtime.upkeep.on_swept = swept.append
    return Cluster(folder, local, nodes, runtime, pending, swept)


@contextlib.asynccontextmanager
async def running(cluster: Cluster) -> AsyncIterator[asyncio.Task[int]]:
    """An engine over two nodes, whose end is waited for."""
    await cluster.runtime.start(engine_spec())
    waiting = asyncio.create_task(cluster.runtime.wait(HEAD))
    await asyncio.sleep(0.01)
    try:
        yield waiting
    finally:
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


async def code_of(waiting: asyncio.Task[int]) -> int:
    async with asyncio.timeout(LIMIT_S):
        return await waiting


async def loss_of(waiting: asyncio.Task[int]) -> HostError:
    """The error with which the wait ends."""
    with pytest.raises(HostError) as lost:
        await code_of(waiting)
    return lost.value


async def until(holds: Callable[[], object], limit_s: float = LIMIT_S) -> None:
    async with asyncio.timeout(limit_s):
        while not holds():  # noqa: ASYNC110 - what a test waits for tells nobody
            await asyncio.sleep(0.005)


async def lines(runtime: ClusterRuntime, name: str) -> list[str]:
    return [line async for line in runtime.logs(name, follow=False)]
