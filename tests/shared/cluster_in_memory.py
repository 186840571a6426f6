"""Three boxes in memory behind one ClusterRuntime, and a daemon that comes after another."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from fake_cluster import OWNER, NodeInMemory, NodesInMemory, engine_spec

from sparkdash.domain.container import LABEL_OWNER
from sparkdash.errors import HostError
from sparkdash.nodes.cluster.cluster_runtime import ClusterRuntime
from sparkdash.nodes.cluster.removal import PendingRemovals

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

    def restarted(self) -> Cluster:
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


async def until(holds: object) -> None:
    assert callable(holds)
    async with asyncio.timeout(LIMIT_S):
        while not holds():  # noqa: ASYNC110 - what a test waits for tells nobody
            await asyncio.sleep(0.005)


async def lines(runtime: ClusterRuntime, name: str, **how: object) -> list[str]:
    return [line async for line in runtime.logs(name, follow=False, tail=how.get("tail"))]  # type: ignore[arg-type]
