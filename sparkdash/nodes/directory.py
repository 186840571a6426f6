"""Directory of nodes: all boxes that engines may run on, with their states, runtimes and addresses."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from sparkdash.domain.cluster import Cables, Topology, topology_of
from sparkdash.domain.metric import Memory, NodeSample
from sparkdash.domain.node import LOCAL, Link, Node, NodeFacts, NodeLaunch, NodeState
from sparkdash.errors import AdmissionError, HostError, SparkdashError
from sparkdash.host.box import HostReader
from sparkdash.host.runtime import Runtime, node_unknown
from sparkdash.log import LOG
from sparkdash.nodes import boxes
from sparkdash.nodes.agent.figures import NodeFigures
from sparkdash.nodes.boxes import Box, refuse_known_box
from sparkdash.nodes.cluster.podman_over_ssh import remote_podman
from sparkdash.nodes.link_liveness import Reach, called
from sparkdash.nodes.node_file import NodeTable
from sparkdash.nodes.shared_links import cable_ends, chosen_links, common_links, differences, find_cables, twin_devices
from sparkdash.nodes.ssh import ssh_errors
from sparkdash.nodes.ssh.connection import NodeConnection
from sparkdash.nodes.ssh.node_monitor import FACTS_EVERY_S, MonitorInputs, NodeMonitor


def no_common_link(offered: Mapping[str, list[Link]]) -> HostError:
    seen = "; ".join(
        f"{called(name)}: {', '.join(f'{link.interface} {link.address}/{link.prefix}' for link in links) or 'none'}"
        for name, links in offered.items()
    )
    return HostError(
        f"{' and '.join(map(called, offered))} share no network ({seen}).",
        code="no_common_link",
        hint="Give the fast link's interfaces addresses of one network on all boxes (in a ring: those of the 10 GbE "
        "ports), and try again after some seconds; docs/many-sparks.md says how.",
    )


FRESH_S = 25.0
"""Age at which a node's figures no longer tell its memory. While nobody looks and nothing runs they come every 15 s."""


@dataclass(frozen=True)
class NodeInputs:
    """Dependencies of a NodeDirectory."""

    read: Callable[[], NodeTable]
    """Reads the registry. Raises ProfileError."""
    reader: HostReader
    program: str
    hf_home: str
    cache_dir: str
    on_change: Callable[[dict[str, NodeState]], object] = lambda _: None
    """Called with all states after each change, in the event loop."""
    on_restart: Callable[[str], object] = lambda _: None
    """Called with the name of a node that is back from a restart."""
    on_problem: Callable[[SparkdashError], object] = lambda _: None
    """Called when the registry cannot be read; the nodes stay as they were."""
    figures: Callable[[NodeConnection], NodeFigures] | None = None
    topology: Callable[[], Topology | None] = lambda: None
    """Reads the topology that the registry declares. Raises ProfileError."""
    local_sample: Callable[[], NodeSample | None] = lambda: None


class NodeDirectory:
    """Boxes by name, LOCAL first; implements `host.nodes.Nodes`. `run` keeps their connections."""

    def __init__(self, inputs: NodeInputs) -> None:
        self._in = inputs
        self._monitors: dict[str, NodeMonitor] = {}
        self._runtimes: dict[str, Runtime] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._returned: list[Callable[[str], None]] = []
        self._local: NodeFacts | None = None
        self._tried_local = asyncio.Event()
        self._stale = asyncio.Event()
        """Set when the facts of this box are to be read again before their time."""
        self._running = False
        self._declared: Topology | None = None
        self.cables: Cables = {}
        """Neighbours of each box, where three or more are cabled to each other."""
        self.reload()

    @property
    def names(self) -> tuple[str, ...]:
        return (LOCAL, *self._monitors)

    @property
    def states(self) -> dict[str, NodeState]:
        return {name: monitor.state.replace(link=self._interface(monitor)) for name, monitor in self._monitors.items()}

    @property
    def samples(self) -> Mapping[str, NodeSample]:
        if not self._monitors:
            return {}
        own = self._in.local_sample()
        found = {LOCAL: own} if own else {}
        for name, monitor in self._monitors.items():
            if monitor.figures is not None and (sample := monitor.figures.sample) is not None:
                found[name] = sample
        return found

    def memory(self, node: str) -> Memory | None:
        if node == LOCAL:
            try:
                return self._in.reader.memory()
            except SparkdashError:
                return None
        monitor = self._monitors.get(node)
        if monitor is None or monitor.figures is None or not monitor.reachable:
            return None
        sample = monitor.figures.sample
        return sample.memory if sample is not None and time.time() - sample.at <= FRESH_S else None

    async def fresh_memory(self, node: str) -> Memory:
        """Read the node's memory now. Raises HostError: node_unknown, node_unreachable, memory_unknown."""
        if node == LOCAL:
            return self._in.reader.memory()
        monitor = self._usable(node)
        if monitor.figures is None:
            raise HostError(f"The memory of {node} is not known.", code="memory_unknown")
        return await monitor.figures.fresh_memory()

    def launch_on(self, names: tuple[str, ...]) -> tuple[NodeLaunch, ...]:
        if names == (LOCAL,):
            return (self._launch(LOCAL, None, None),)
        for name in names:
            if name != LOCAL:  # first: an unusable node explains more than a missing link
                self._usable(name)
        known = {name: self._facts(name) for name in names}
        if len(names) == 1:
            return tuple(self._launch(name, found, None) for name, found in known.items())
        return self._linked(names, known)

    def _linked(self, names: tuple[str, ...], known: Mapping[str, NodeFacts]) -> tuple[NodeLaunch, ...]:
        """Return the launches on several nodes, with the links by which they reach each other. Raises HostError."""
        offered = [chosen_links(found.links, self._node(name)) for name, found in known.items()]
        links = common_links(offered)
        if links is None:
            self._read_again()  # an interface may have got its address after the last reading
            raise no_common_link(dict(zip(names, offered, strict=True)))
        launches = [self._launch(name, known[name], link) for name, link in zip(names, links, strict=True)]
        if len(names) > 2 and self.cables and topology_of(names, self.cables):
            ends = cable_ends(names, offered, self.cables)
            return tuple(each.replace(cables=own) for each, own in zip(launches, ends, strict=True))
        twins = twin_devices(links, offered)
        return tuple(each.replace(twins=more) for each, more in zip(launches, twins, strict=True))

    def reached(self, name: str, pairs: Iterable[tuple[str, str]]) -> Reach:
        """Tell which of these peers the node reaches from its own addresses, and have it go on trying them."""
        monitor = self._monitors.get(name)
        if monitor is None or monitor.figures is None:
            return {}
        monitor.figures.probe(pairs)
        return monitor.figures.reached

    def held(self, name: str) -> tuple[str, ...]:
        """Name our containers on another node that are paused, or of which a process is stopped."""
        figures = self._monitors[name].figures if name in self._monitors else None
        return figures.held if figures is not None else ()

    def reachable(self, name: str) -> bool:
        """Whether calls to the node can be expected to succeed; True for LOCAL, False for an unknown name."""
        return name == LOCAL or (name in self._monitors and self._monitors[name].reachable)

    def runtime(self, name: str) -> Runtime:
        self._usable(name)
        return self._runtimes[name]

    def connection(self, name: str) -> NodeConnection:
        """Return the connection. Raises HostError: node_unknown, node_unreachable."""
        return self._usable(name).connection

    async def forward(self, name: str, port: int, remote_port: int | None = None) -> None:
        """Forward 127.0.0.1:`port` to the node, now and after each loss. Raises HostError: port_in_use, …"""
        await self.connection(name).forward(port, remote_port)

    async def cancel_forward(self, name: str, port: int) -> None:
        if name in self._monitors:
            await self._monitors[name].connection.cancel_forward(port)

    def on_return(self, callback: Callable[[str], None]) -> None:
        """Have `callback` called with a node's name each time it can be reached again, the first time included."""
        self._returned.append(callback)

    def set_pending(self, name: str, containers: tuple[str, ...]) -> None:
        """Set which containers are to be ended on the node as soon as it can be reached."""
        if name in self._monitors:
            self._monitors[name].note(owed=containers)

    def set_guarded(self, name: str, guarded: bool) -> None:
        if name in self._monitors:
            self._monitors[name].note(guarded=guarded)

    def reload(self) -> None:
        """Read the registry again: new nodes are connected, removed or edited ones disconnected, silent ones tried."""
        try:
            nodes = {node.name: node for node in self._in.read()}
            self._declared = self._in.topology()
        except SparkdashError as error:
            self._in.on_problem(error)
            return
        self._stale.set()
        before = {name: monitor.node for name, monitor in self._monitors.items()}
        for name, node in before.items():
            if nodes.get(name) != node:
                self._drop(name)
        for name, node in nodes.items():
            if name in self._monitors:
                self._monitors[name].try_again()
                self._monitors[name].read_facts_again()
            else:
                self._add(node)
        self._monitors = {name: self._monitors[name] for name in nodes}
        self._find_cables()
        if nodes != before:
            self._changed()

    async def run(self) -> None:
        self._running = True
        try:
            for name in self._monitors:
                self._start(name)
            await self._read_local_facts()
        finally:
            self._running = False
            tasks = [*self._tasks.values(), *self._ending]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._tasks.clear()

    async def first_tries(self, limit_s: float) -> None:
        """Wait until each node was tried once, well or not, `limit_s` at most."""
        waits = [asyncio.ensure_future(monitor.settled.wait()) for monitor in self._monitors.values()]
        if waits:
            _, late = await asyncio.wait(waits, timeout=limit_s)
            for each in late:
                each.cancel()

    async def _read_local_facts(self) -> None:
        while True:
            pause_s = FACTS_EVERY_S
            try:
                found = await boxes.read_local_facts(self._in.program, self._in.hf_home)
            except HostError as error:
                LOG.warning("the facts of this box cannot be read", why=error.message)
                pause_s = boxes.FACTS_S
            else:
                if found != self._local:
                    self._local = found
                    self._changed()
            self._tried_local.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._stale.wait()
            self._stale.clear()

    def _add(self, node: Node) -> None:
        orders = MonitorInputs(self._read_facts, self._changed, self._back, self._restarted, self._differences)
        monitor = NodeMonitor(node, orders, self._in.figures)
        self._monitors[node.name] = monitor
        self._runtimes[node.name] = remote_podman(monitor.connection, self._in.program)
        if self._running:
            self._start(node.name)

    async def _read_facts(self, connection: NodeConnection) -> NodeFacts:
        """Read the facts of a node. Raises HostError: node_known, for a box that is known by another name."""
        name, found = connection.node.name, await boxes.read_facts(connection, self._in.program)
        await self._tried_local.wait()
        known = {each: monitor.state.facts for each, monitor in self._monitors.items() if monitor.reachable}
        known[LOCAL] = self._local
        try:
            others = (Box(each, facts=theirs) for each, theirs in known.items() if each != name)
            return refuse_known_box(Box(name, facts=found), others)
        except AdmissionError as error:
            hint = f"`sparkdash nodes remove {name}` leaves it with one name."
            raise HostError(error.message, code=error.code, hint=hint) from None

    def _start(self, name: str) -> None:
        self._tasks[name] = asyncio.create_task(self._monitors[name].run(), name=f"node {name}")

    def _drop(self, name: str) -> None:
        del self._monitors[name], self._runtimes[name]
        if task := self._tasks.pop(name, None):
            task.cancel()
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    def _changed(self) -> None:
        self._find_cables()
        self._in.on_change(self.states)

    def _find_cables(self) -> None:
        known = {LOCAL: self._local} | {name: monitor.state.facts for name, monitor in self._monitors.items()}
        offered = {name: chosen_links(found.links, self._node(name)) for name, found in known.items() if found}
        self.cables = find_cables(offered, self._declared) if len(known) > 2 else {}

    def _differences(self, before: NodeFacts, now: NodeFacts) -> Iterator[str]:
        return differences(before, now, self._local, cabled=bool(self.cables))

    def _restarted(self, name: str) -> None:
        """Read all facts again: a neighbour's restart moves the GIDs of its cables' other ends."""
        self._read_again()
        self._in.on_restart(name)

    def _read_again(self) -> None:
        self._stale.set()
        for monitor in self._monitors.values():
            monitor.read_facts_again()

    def _back(self, name: str) -> None:
        for callback in self._returned:
            callback(name)

    def _usable(self, name: str) -> NodeMonitor:
        monitor = self._monitors.get(name)
        if monitor is None:
            raise node_unknown(name)
        if not monitor.reachable:
            raise monitor.reason or ssh_errors.unreachable(monitor.node, "the first connection is being made")
        return monitor

    def _node(self, name: str) -> Node | None:
        return None if name == LOCAL else self._monitors[name].node

    def _facts(self, name: str) -> NodeFacts:
        found = self._local if name == LOCAL else self._usable(name).state.facts
        if found is None:
            raise HostError(
                f"The links of {called(name)} are not known yet.",
                code="node_unreachable",
                hint="They are read within seconds after the start; try again.",
            )
        return found

    def _launch(self, name: str, found: NodeFacts | None, link: Link | None) -> NodeLaunch:
        hf_home, cache_dir = self._in.hf_home, self._in.cache_dir
        if name != LOCAL and found is not None:
            hf_home = self._monitors[name].node.hf_home or "~/.cache/huggingface"
            if hf_home == "~" or hf_home.startswith("~/"):
                hf_home = found.home + hf_home[1:]
            cache_dir = f"{found.home}/.cache/sparkdash"
        address = link.address if link else None
        return NodeLaunch(name=name, address=address or "127.0.0.1", hf_home=hf_home, cache_dir=cache_dir, link=link)

    def _interface(self, monitor: NodeMonitor) -> str | None:
        there = monitor.state.facts
        if there is None or self._local is None:
            return monitor.node.interface
        links = common_links([chosen_links(self._local.links, None), chosen_links(there.links, monitor.node)])
        return links[1].interface if links else None
