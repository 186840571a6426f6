"""NodeWatch: figures and memory guards of all other nodes, for the parts of the daemon that need them."""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from sparkdash.domain.engine import Engine
from sparkdash.domain.event import Fact
from sparkdash.domain.memory import GuardKill
from sparkdash.domain.metric import Memory, NodeSample
from sparkdash.errors import EngineError, HostError
from sparkdash.host.kernel_figures import Interfaces, RdmaPorts
from sparkdash.log import LOG
from sparkdash.nodes.agent import node_guard
from sparkdash.nodes.agent.figures import NodeFigures
from sparkdash.nodes.agent.node_guard import GuardedContainer, make_lease
from sparkdash.nodes.agent.tick import GuardAct, LinkRates, PortCount
from sparkdash.nodes.ssh.connection import NodeConnection
from sparkdash.settings import Settings


class LocalLinks:
    """Interfaces and RDMA ports of this box."""

    def __init__(self) -> None:
        self._interfaces, self._rdma = Interfaces(), RdmaPorts()
        self._rates = LinkRates()

    def read(self) -> NodeSample:
        """Read all counters, which takes some 100 µs."""
        at = time.monotonic()
        ports = map(PortCount.model_validate, (*self._interfaces.read(at), *self._rdma.read(at)))
        return NodeSample(at=time.time(), links=self._rates.add(at, ports))


KILL_S = 300.0
"""Age up to which a guard's report explains the end of a container."""


class NodeWatch:
    """Figures of all other nodes. Until `settings` is set, no guard is started."""

    def __init__(self, owner: str, publish: Callable[[Fact], object]) -> None:
        self.engines: Callable[[], Mapping[str, Engine]] = dict
        self.settings: Callable[[], Settings] | None = None
        self.record_kill: Callable[[GuardKill], object] = lambda _: None
        self._publish = publish
        self.on_guarded: Callable[[str, bool], object] = lambda *_: None
        """Called with a node's name and whether its guard runs, after each change."""
        self._owner = owner
        self._figures: dict[str, NodeFigures] = {}
        self._local: LocalLinks | None = None
        self._every_s: float | None = None
        self._kills: dict[str, tuple[str, GuardAct, float]] = {}
        """Node, report and time by this box's clock of the last kills, by container."""

    def make(self, connection: NodeConnection) -> NodeFigures:
        """Make the figures of the node behind a connection; they replace earlier ones of that node."""
        name = connection.node.name
        figures = NodeFigures(
            name,
            connection,
            self._owner,
            lease=partial(self.lease, name),
            on_kill=partial(self._killed, name),
            on_change=partial(self._changed, name),
        )
        if self._every_s is not None:
            figures.pace(self._every_s)
        self._figures[name] = figures
        return figures

    def pace(self, every_s: float) -> None:
        self._every_s = every_s
        for figures in self._figures.values():
            figures.pace(every_s)

    def local_sample(self) -> NodeSample:
        self._local = self._local or LocalLinks()
        return self._local.read()

    def lease(self, node: str, memory: Memory) -> dict[str, Any] | None:
        """Return the lease of a node's guard; None until `settings` is set."""
        if self.settings is None:
            return None
        settings = self.settings()
        return make_lease(settings, memory.total, containers_on(node, self.engines(), settings, memory))

    async def kill_reason(self, container: str) -> EngineError | None:
        """Why a node's guard killed this container or one of its workers; None if none did.

        Asks the nodes once, as a death may be known before the guard's report. A report explains one death.
        """
        if self._kill_of(container) is None:
            engine = next((it for it in self.engines().values() if it.container == container), None)
            for node in engine.nodes if engine else ():
                with suppress(HostError):
                    if figures := self._figures.get(node):
                        await figures.fresh_memory()
        name = self._kill_of(container)
        if name is None:
            return None
        node, act, _ = self._kills.pop(name)
        return node_guard.killed(node, act)

    def _kill_of(self, container: str) -> str | None:
        now = time.time()
        for name, (_, _, at) in self._kills.items():
            rank = name.removeprefix(container + WORKER)
            if now - at <= KILL_S and (name == container or (rank != name and rank.isdigit())):
                return name
        return None

    def _killed(self, node: str, act: GuardAct) -> None:
        at = act.clock - self._figures[node].clock_offset_s
        notice = node_guard.notice(node, act, at)
        LOG.warning(notice.text, code=notice.code, node=node)
        if act.container is not None:
            self._kills[act.container] = node, act, at
            kill = GuardKill(
                at=at,
                profile=node_guard.profile_of(act),
                available=act.available,
                pressure=act.pressure,
                processes=act.processes or 0,
                reason=node_guard.killed(node, act).message,
            )
            self.record_kill(kill)
        self._publish(notice)

    def _changed(self, node: str) -> None:
        self.on_guarded(node, self._figures[node].guarded)


def containers_on(
    node: str, engines: Mapping[str, Engine], settings: Settings, memory: Memory
) -> list[GuardedContainer]:
    found = []
    for name, engine in engines.items():
        if node not in engine.nodes or engine.container is None:
            continue
        rank = engine.nodes.index(node)
        container = engine.container if rank == 0 else f"{engine.container}{WORKER}{rank}"
        found.append(
            GuardedContainer(
                container=container,
                profile=name,
                serves=engine.state.is_serving,
                pinned=settings.policy_of(name).pinned,
                in_flight=engine.in_flight,
                bytes=memory.engines.get(container),
                reload_s=engine.load_s,
            )
        )
    return found


WORKER = "-worker"
"""Between the head's name and the rank, in the name of a worker's container."""
