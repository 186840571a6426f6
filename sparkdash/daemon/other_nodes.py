"""Other nodes of the daemon: their connections, figures, and the runtime of engines on all nodes.

Without a registered node nothing of it runs; the first one is taken up when its file is read again.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import cast

from sparkdash import paths
from sparkdash.domain.engine import Engine
from sparkdash.domain.event import Fact, Level, NodesChanged, Notice
from sparkdash.domain.memory import GuardKill
from sparkdash.domain.node import LOCAL
from sparkdash.errors import SparkdashError
from sparkdash.host.box import HostReader
from sparkdash.host.runtime import Nodes, OneNode, Runtime
from sparkdash.nodes import node_file
from sparkdash.nodes.agent.watch import NodeWatch
from sparkdash.nodes.cluster.cluster_runtime import ClusterRuntime
from sparkdash.nodes.cluster.group_end import link_notice
from sparkdash.nodes.cluster.removal import FILE_NAME, PendingRemovals
from sparkdash.nodes.directory import NodeDirectory, NodeInputs
from sparkdash.nodes.link_liveness import LinkTrouble, LookAtLink, look_at_link
from sparkdash.nodes.shipping.shipper import make_shipper
from sparkdash.settings import Settings
from sparkdash.supervisor import Supervisor

LOOK_S = 2.0
"""Seconds between two looks at whether the registry was edited."""
TRY_S = 10.0
"""Longest wait for the first connection to a node that was just added."""


class OwnBoxFirst:
    """Stands for this box's `own` part; from the first other box on, and ever after, for the part of all boxes."""

    def __init__(self, own: object, of_all: object, has_others: Callable[[], bool]) -> None:
        self._own, self._of_all, self._has_others = own, of_all, has_others

    def __getattr__(self, name: str) -> object:
        return getattr(self._of_all if self._has_others() else self._own, name)


class OtherNodes:
    """Other nodes; `run` until cancelled. `runtime` and `nodes` are this box's until a second box is registered."""

    def __init__(
        self, local: Runtime, reader: HostReader, settings: Settings, publish: Callable[[Fact], object]
    ) -> None:
        self._settings: Callable[[], Settings] = lambda: settings
        self._publish, owner = publish, paths.owner()
        self._file = node_file.nodes_file()
        self._seen = self._stamp()
        self._pending = PendingRemovals(paths.state_dir() / FILE_NAME, self._tell_pending)
        self.watch = NodeWatch(owner, publish)
        self.directory = NodeDirectory(
            NodeInputs(
                read=partial(node_file.read_nodes, self._file),
                topology=partial(node_file.read_topology, self._file),
                reader=reader,
                program=local.name,
                hf_home=str(settings.hf_home.expanduser()),
                cache_dir=str(settings.cache_dir.expanduser()),
                on_change=lambda states: publish(NodesChanged(nodes=states)),
                on_restart=self._tell_restart,
                on_problem=lambda error: publish(Notice(level=Level.ERROR, code=error.code, text=error.text())),
                figures=self.watch.make,
                local_sample=self.watch.local_sample,
            )
        )
        self.watch.on_guarded = self.directory.set_guarded
        self._cluster = ClusterRuntime(
            local, self.directory, owner=owner, pending=self._pending, silent_s=lambda: self._settings().node_silent_s
        )
        self._engines: Callable[[], Mapping[str, Engine]] = dict
        self._cluster.watch_link = self._watch_link
        self._cluster.on_link = self._tell_link
        self._cluster.held = self.directory.held
        self.shipper = make_shipper(settings, self._fast_address)
        self._had_others = False
        self.runtime = cast("Runtime", OwnBoxFirst(local, self._cluster, self._has_others))
        self.nodes = cast("Nodes", OwnBoxFirst(OneNode(reader), self.directory, self._has_others))
        self._reread = asyncio.Event()
        self._tell_pending()

    def attach(self, supervisor: Supervisor, record_kill: Callable[[GuardKill], object]) -> None:
        """Have the supervisor look for engines on nodes that return, and the nodes' guards know its engines."""
        self._cluster.upkeep.on_swept = lambda _: supervisor.node_returned()
        self._engines, self._settings = lambda: supervisor.engines, lambda: supervisor.settings
        self.watch.engines, self.watch.settings, self.watch.record_kill = self._engines, self._settings, record_kill

    async def run(self) -> None:
        """Keep the nodes connected, and free of what should have ended there."""
        while len(self.directory.names) < 2:
            self._reread.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._reread.wait(), LOOK_S)
            self.reload_if_edited()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.directory.run(), name="node directory")
            group.create_task(self._cluster.upkeep.run(), name="node upkeep")
            while True:
                await asyncio.sleep(LOOK_S)
                self.reload_if_edited()

    def reload_if_edited(self) -> None:
        if self._stamp() != self._seen:
            self.reload()

    def reload(self) -> None:
        self._seen = self._stamp()
        self.directory.reload()
        self._tell_pending()
        self._reread.set()

    async def connected(self) -> None:
        """Return once each node was tried and told its memory, or could not be, TRY_S at most."""
        await self.directory.first_tries(TRY_S)

    def _has_others(self) -> bool:
        self._had_others = self._had_others or len(self.directory.names) > 1
        return self._had_others

    def _fast_address(self, node: str) -> str | None:
        try:
            return self.directory.launch_on((LOCAL, node))[1].address
        except SparkdashError:
            return None

    def _watch_link(self, nodes: tuple[str, ...]) -> LookAtLink | None:
        try:
            launches = self.directory.launch_on(nodes)
            return look_at_link(launches, lambda: self.directory.samples, self.directory.reached)
        except SparkdashError:
            return None

    def _tell_link(self, head: str, trouble: LinkTrouble | None, left_s: float) -> None:
        name = next((name for name, engine in self._engines().items() if engine.container == head), head)
        self._publish(link_notice(name, self._cluster.engine_nodes(head), trouble, left_s))

    def _stamp(self) -> tuple[int, int] | None:
        try:
            seen = self._file.stat()
        except OSError:
            return None
        return seen.st_mtime_ns, seen.st_ino

    def _tell_pending(self) -> None:
        for name in self.directory.names:
            if name != LOCAL:
                self.directory.set_pending(name, self._pending.containers(name))

    def _tell_restart(self, node: str) -> None:
        text = f"{node} was restarted and can be reached again. Nothing that ran on it before runs on."
        self._publish(Notice(level=Level.WARNING, code="node_restarted", text=text))
