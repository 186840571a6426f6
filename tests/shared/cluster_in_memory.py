"""This box and two others in memory behind one ClusterRuntime, and a daemon that comes after another."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from fake_cluster import OWNER, NodeInMemory, NodesInMemory

from sparkdash.domain.container import LABEL_OWNER
from sparkdash.nodes.cluster.cluster_runtime import ClusterRuntime
from sparkdash.nodes.cluster.removal import PendingRemovals

HEAD, WORKER = "sparkdash-big", "sparkdash-big-worker"
LIMIT_S = 20.0
OURS = {LABEL_OWNER: OWNER}


@dataclass
class Cluster:
    """This box and two others."""

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


async def until(holds: object) -> None:
    assert callable(holds)
    async with asyncio.timeout(LIMIT_S):
        while not holds():  # noqa: ASYNC110 - what a test waits for tells nobody
            await asyncio.sleep(0.005)


async def lines(runtime: ClusterRuntime, name: str, **how: object) -> list[str]:
    return [line async for line in runtime.logs(name, follow=False, tail=how.get("tail"))]  # type: ignore[arg-type]
