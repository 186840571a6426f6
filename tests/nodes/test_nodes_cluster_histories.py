"""Random histories of eight boxes in a ring: engines start, ranks die, boxes fall silent and return, in virtual time."""

import asyncio
import contextlib
import random
import selectors
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_cluster import Cluster, NodeInMemory, NodesInMemory, cluster_in, engine_spec
from thorough import FULL

from sparkdash.domain.cluster import Topology, groups
from sparkdash.domain.container import ContainerState
from sparkdash.errors import HostError
from sparkdash.nodes.cluster import cluster_runtime, group_end, removal

BOXES = ("local", *(f"spark{number}" for number in range(2, 9)))
RING = {name: frozenset({BOXES[place - 1], BOXES[(place + 1) % 8]}) for place, name in enumerate(BOXES)}
GROUPS = [group for count in (2, 4, 8) for group in groups(BOXES, count, RING, [*Topology])]
SILENT_S = 30.0
STEPS = 12
HISTORIES = 5000 if FULL else 200
BATCH = 50


class VirtualSelector(selectors.DefaultSelector):
    """Waits no time: what is not ready at once costs the loop's clock its wait."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        found = super().select(0.001 if timeout is None else 0)
        if not found and timeout:
            self.now += timeout
        return found


@contextlib.contextmanager
def virtual_loop() -> Iterator[asyncio.AbstractEventLoop]:
    selector = VirtualSelector()
    loop = asyncio.SelectorEventLoop(selector)
    loop.time = lambda: selector.now  # type: ignore[method-assign]
    try:
        yield loop
    finally:
        loop.close()


class History:
    """A history: the moves of the supervisor, and the boxes under it."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.nodes = NodesInMemory(*BOXES[1:])
        self.local = NodeInMemory("local")
        self.cluster: Cluster = cluster_in(folder, self.local, self.nodes)
        self.cluster.runtime._silent_s = lambda: SILENT_S
        self.engines: dict[str, tuple[str, ...]] = {}
        self.told: list[str] = []

    async def run(self) -> None:
        async with self.cluster.kept_up(), asyncio.TaskGroup() as group:
            for step in range(STEPS):
                getattr(self, self.chance.choice(["start", "start", "kill", "cut", "fix", "stop"]))(group, f"e{step}")
                await asyncio.sleep(self.chance.choice([0.0, 1.0, SILENT_S + 20.0]))
            await self.settle()
            for name in [name for name in BOXES[1:] if self.on(name).silent]:
                self.nodes.fix(name)
            for name in list(self.engines):
                self.end(group, name)
            await self.settle()
            left = [f"{name} {made.state} on {box}" for box in BOXES for name, made in self.on(box).here.items()]
            assert not left, "\n".join([*left, *self.told])
            assert not self.cluster.pending.nodes, self.told

    async def settle(self) -> None:
        """After the time that a silent box has, every engine runs on all of its boxes, or on none that answers."""
        await asyncio.sleep(SILENT_S + 30.0)
        for name, boxes in self.engines.items():
            running = [box for box in boxes if not self.on(box).silent and self.runs(name, box)]
            silent = [box for box in boxes if self.on(box).silent]
            assert running in ([], list(boxes)), (name, running, silent, self.told)

    def on(self, box: str) -> NodeInMemory:
        return self.local if box == "local" else self.nodes.on[box]

    def runs(self, engine: str, box: str) -> bool:
        return any(
            name.startswith(f"{engine}.") and made.state is ContainerState.RUNNING
            for name, made in self.on(box).here.items()
        )

    def start(self, group: asyncio.TaskGroup, name: str) -> None:
        taken = {box for boxes in self.engines.values() for box in boxes}
        free = [some for some in GROUPS if taken.isdisjoint(some)]
        if free:
            boxes = self.engines[name] = self.chance.choice(free)
            self.told.append(f"start {name} on {boxes}")
            group.create_task(self.live(f"{name}.", boxes))

    async def live(self, head: str, boxes: tuple[str, ...]) -> None:
        with contextlib.suppress(HostError):
            await self.cluster.runtime.start(engine_spec(head, boxes))
            with contextlib.suppress(HostError):
                await self.cluster.runtime.wait(head)
            await self.cluster.runtime.stop(head, 1.0)
        self.engines.pop(head[:-1], None)

    def end(self, group: asyncio.TaskGroup, name: str) -> None:
        self.told.append(f"stop {name}")
        group.create_task(self.stopped(f"{name}."))

    async def stopped(self, head: str) -> None:
        with contextlib.suppress(HostError):
            await self.cluster.runtime.stop(head, 1.0)

    def stop(self, group: asyncio.TaskGroup, _: str) -> None:
        if self.engines:
            self.end(group, self.chance.choice(list(self.engines)))

    def kill(self, _group: asyncio.TaskGroup, _name: str) -> None:
        there = [(box, name) for box in BOXES for name in self.on(box).here if not self.on(box).silent]
        if there:
            box, name = self.chance.choice(there)
            self.told.append(f"kill {name} on {box}")
            self.on(box).here[name].end(137)

    def cut(self, _group: asyncio.TaskGroup, _name: str) -> None:
        box = self.chance.choice(BOXES[1:])
        self.told.append(f"cut {box}")
        self.nodes.cut(box)

    def fix(self, _group: asyncio.TaskGroup, _name: str) -> None:
        silent = [box for box in BOXES[1:] if self.on(box).silent]
        if silent:
            self.told.append(f"fix {silent[0]}")
            self.nodes.fix(self.chance.choice(silent))


@pytest.mark.parametrize("batch", range(HISTORIES // BATCH))
def test_no_engine_is_half_alive_once_a_silent_box_has_had_its_time(
    batch: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def free_port(_node: str, _port: int) -> None:
        pass

    async def at_once(_write: Callable[[], object]) -> None:  # a thread would live in another time
        await asyncio.sleep(0)

    monkeypatch.setattr(cluster_runtime, "refuse_taken_port", free_port)
    monkeypatch.setattr(removal, "in_thread", at_once)
    for name, pause_s in (("LOOK_EVERY_S", 5.0), ("AGAIN_S", 5.0), ("LINK_EVERY_S", 20.0), ("RANKS_EVERY_S", 20.0)):
        monkeypatch.setattr(group_end, name, pause_s)  # a tenth of the work
    for seed in range(batch * BATCH, (batch + 1) * BATCH):
        folder = tmp_path / str(seed)
        folder.mkdir()
        with virtual_loop() as loop:
            loop.run_until_complete(History(folder, seed).run())
