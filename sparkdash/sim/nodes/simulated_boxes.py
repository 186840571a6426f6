"""Composition of the simulated boxes: what stands for the runtime, the reader and the nodes of a daemon.

Owns: the folders of each box, and which parts several boxes need. Must not know: the daemon, profiles.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

from sparkdash.domain.event import NodesChanged
from sparkdash.host.processes.process import Process
from sparkdash.host.runtime import Runtime
from sparkdash.nodes.cluster_runtime import ClusterRuntime
from sparkdash.nodes.owed import OwedRemovals
from sparkdash.sim.box import SimBox
from sparkdash.sim.nodes.node_process import NodeProcess
from sparkdash.sim.nodes.simulated_nodes import SimulatedNodes

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
    """Runtimes of the single boxes."""
    nodes: SimulatedNodes | None = None
    """Other boxes; None with one."""
    attend: Callable[[Publish], Awaitable[None]] | None = None
    """Tells the states of the nodes and ends there what is owed, until cancelled; None with one box."""


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

    def tell_owed() -> None:
        for name in others:
            nodes.owe(name, owed.containers(name))

    owed = OwedRemovals(folder / "owed.json", tell_owed)
    runtime = ClusterRuntime(here, nodes, owner=owner, owed=owed, silent_s=lambda: SILENT_S)

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
