"""Cluster runtime: engines on this box and on other nodes behind one Runtime, each known by its head's name.

What runs on this box alone goes straight to the local runtime. DESIGN.md has the reasons.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import suppress

from sparkdash.domain.container import (
    LABEL_HEAD,
    LABEL_OWNER,
    ContainerInfo,
    ContainerSpec,
    ContainerState,
    Leftovers,
    PullProgress,
)
from sparkdash.domain.node import LOCAL
from sparkdash.errors import HostError
from sparkdash.host.runtime import Runtime
from sparkdash.nodes.agent.engine_processes import is_held
from sparkdash.nodes.cluster import group_end, groups
from sparkdash.nodes.cluster.group_logs import GroupLogs
from sparkdash.nodes.cluster.node_runtimes import AllRuntimes, NodeRuntimes, naming, placed_on
from sparkdash.nodes.cluster.removal import GroupStop, NodeUpkeep, PendingRemoval, PendingRemovals, merged

REFUSED_S = 3.0
"""Time in which ssh closes a connection to a port on which nobody listens; it takes a round trip."""


async def refuse_taken_port(node: str, port: int) -> None:
    """Make sure that nobody listens on the node behind 127.0.0.1:`port`, which is forwarded to it.

    Another sparkdash on that box chooses its ports without asking us, and its engine would answer for ours.
    Raises HostError: port_in_use.
    """
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return
    try:
        async with asyncio.timeout(REFUSED_S):
            is_taken = await reader.read(1) != b""
    except TimeoutError:
        is_taken = True
    except OSError:
        is_taken = False
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
    if is_taken:
        raise HostError(
            f"A program listens on port {port} of {node} already.",
            code="port_in_use",
            hint=f"`ss -ltnp sport = :{port}` on {node} names the program; another sparkdash there should have other "
            "`engine_ports` in its config.toml.",
        )


CONNECT_S = 5.0
"""Longest wait, before containers are listed for the first time, for nodes that are being connected."""


class ClusterRuntime:
    """Runtime of engines on all nodes. `silent_s` says how long a node may be silent until its engines are lost."""

    def __init__(
        self,
        local: Runtime,
        others: NodeRuntimes,
        *,
        owner: str,
        pending: PendingRemovals,
        silent_s: Callable[[], float],
    ) -> None:
        self.name = local.name
        self.containerised = local.containerised
        self._local = local
        self._others = others
        self._runtimes = AllRuntimes(local, others)
        self._owner = owner
        self._pending = pending
        self._silent_s = silent_s
        self._engines: dict[str, groups.EngineMembers] = {}
        """Engines that this daemon started or found, by head; orphans too, until they are stopped."""
        self._starting: Counter[str] = Counter()
        self._ends: dict[str, group_end.FirstEnd] = {}
        self.watch_link: group_end.WatchLink = lambda _nodes: None
        """Finds the link between the nodes of an engine, to be looked at while it runs."""
        self.on_link: group_end.TellLink = lambda _head, _fault, _left_s: None
        """Told when that link is down, and when it is back."""
        self.held: Callable[[str], Collection[str]] = lambda _node: ()
        """Names the containers on another node of which a process is held."""
        self._logs = GroupLogs(self._runtimes, self._find)
        self.upkeep = NodeUpkeep(self._runtimes, pending, owner, self._engines, self._on_return)
        self._stopping = GroupStop(self._runtimes, pending, self.upkeep)

    def engine_nodes(self, name: str) -> tuple[str, ...]:
        """Nodes of the engine with this head, the serving one first; LOCAL for one that is not known."""
        engine = self._engines.get(name)
        return engine.nodes if engine else (LOCAL,)

    async def version(self) -> str:
        return await self._local.version()

    async def image_id(self, image: str) -> str | None:
        return await self._local.image_id(image)

    async def images(self, names: Collection[str]) -> dict[str, int]:
        return await self._local.images(names)

    def pull(self, image: str) -> AsyncIterator[PullProgress]:
        return self._local.pull(image)

    async def command(self, spec: ContainerSpec) -> list[str]:
        return await self._local.command(spec)

    async def check_start(self, spec: ContainerSpec) -> None:
        await self._local.check_start(spec)

    async def start(self, spec: ContainerSpec) -> ContainerInfo:
        """Start the workers, then the head; if one container does not start, remove the others.

        Raises:
            HostError: as the node's runtime; names the node where it is not this box.
        """
        engine = groups.members_of(spec)
        self._ends.pop(spec.name, None)
        if engine.is_local:
            started = await self._local.start(spec)
            self._engines[spec.name] = engine
            return started
        for node in dict.fromkeys(engine.nodes):
            if node != LOCAL:
                with naming(node):
                    await self.upkeep.clear(node)
        self._engines[spec.name] = engine
        try:
            return await self._start_all(spec, engine)
        except BaseException:
            self._engines.pop(spec.name, None)
            raise

    async def _start_all(self, spec: ContainerSpec, engine: groups.EngineMembers) -> ContainerInfo:
        begun: list[groups.Member] = []
        try:
            if engine.head_node != LOCAL:
                with naming(engine.head_node):
                    await self._others.forward(engine.head_node, spec.port)
                    await refuse_taken_port(engine.head_node, spec.port)
            for part in (*spec.workers, spec):
                started = await self._start_one(spec.name, groups.labelled(part, spec, engine, self._owner), begun)
        except BaseException:
            await asyncio.shield(self._stopping.undo(engine, begun))
            raise
        return started

    async def _start_one(self, head: str, part: ContainerSpec, begun: list[groups.Member]) -> ContainerInfo:
        member = groups.Member(head, part.node, part.name)
        if part.node != LOCAL:
            begun.append(member)  # before the try: a node that falls silent never says whether the container was made
        self._starting[part.node] += 1
        try:
            with naming(part.node):
                started = await self._runtimes.on(part.node).start(part)
        finally:
            self._starting[part.node] -= 1
        if part.node == LOCAL:
            begun.append(member)
        return placed_on(part.node, started)

    async def stop(self, name: str, grace_s: float, before_removal: Awaitable[None] | None = None) -> Leftovers:
        engine = self._engines.get(name)
        if engine is None or engine.is_local:
            left = await self._local.stop(name, grace_s, before_removal)
        else:
            left = await self._stopping.stop(engine, grace_s, before_removal)
        self._engines.pop(name, None)
        self._ends.pop(name, None)
        return left

    async def inspect(self, name: str) -> ContainerInfo | None:
        engine = self._engines.get(name)
        node = engine.head_node if engine else LOCAL
        with naming(node):
            found = await self._runtimes.on(node).inspect(name)
        return None if found is None else placed_on(node, found)

    async def containers(self, labels: Mapping[str, str]) -> list[ContainerInfo]:
        """List engines by their heads, and workers that belong to none; without the owner's label only this box's."""
        if labels.get(LABEL_OWNER) != self._owner or not self._others.states:
            return await self._local.containers(labels)
        grouped = groups.group_containers(await self._listed(), self._engines)
        await self._pending.add(*map(_removal_of, grouped.doubles))
        found = [each for group in grouped.engines if (each := await self._taken_in(group))]
        found += [orphan for orphan in grouped.orphans if await self._taken_as_engine(orphan)]
        return [each for each in found if all(value in ("", each.labels.get(key)) for key, value in labels.items())]

    async def _taken_as_engine(self, orphan: ContainerInfo) -> bool:
        """Note the orphan as an engine of its own, unless an engine has its name: a stop would end that engine."""
        if orphan.name in self._engines:
            await self._pending.add(_removal_of(orphan))
            self.upkeep.look_soon(orphan.node)
            return False
        self._engines[orphan.name] = groups.alone(orphan.node, orphan.name)
        return True

    async def _listed(self) -> groups.Listing:
        """List our containers on all nodes; a reachable node that did not answer is asked again soon."""
        listing = await self._runtimes.list_all(self._owner)
        for node, seen in listing.items():
            if seen is None and self._runtimes.is_reachable(node):
                self.upkeep.look_soon(node)
        return listing

    async def _taken_in(self, group: groups.EngineGroup) -> ContainerInfo | None:
        """Note the engine and forward its port; None when the port cannot be forwarded now."""
        head, engine = group.head, group.members
        if engine.head_node != LOCAL and engine.port is not None and group.state is ContainerState.RUNNING:
            try:
                await self._others.forward(engine.head_node, engine.port)
            except HostError:
                self.upkeep.look_soon(engine.head_node)
                return None
        self._engines[head.name] = engine
        if any(each.head == head.name for member in engine.members for each in self._pending.on(member.node)):
            return head.replace(state=ContainerState.EXITED)  # its stop is pending
        return group.as_container()

    async def settle(self, owner: str) -> Leftovers:
        """Settle every node that can be asked; nodes that are being connected are waited for. See Runtime.

        A node on which a start is under way is left out: seen from there, its `run` could be a killed daemon's.
        """
        left = await self._local.settle(owner)
        await self._others.first_tries(CONNECT_S)
        for node in self._others.states:
            if self._runtimes.is_reachable(node) and not self._starting[node]:
                with suppress(HostError):
                    await self.upkeep.clear_pending(node)
                    left = merged(left, node, await self._runtimes.on(node).settle(owner))
        return left

    def logs(self, name: str, *, follow: bool, tail: int | None = None) -> AsyncIterator[str]:
        """Read the head's lines and its workers', each of these with its node's name. See Runtime."""
        engine = self._engines.get(name)
        if engine is None or engine.is_local:
            return self._local.logs(name, follow=follow, tail=tail)
        return self._logs.read(engine, follow=follow, tail=tail, ended=self._ends.get(name))

    async def wait(self, name: str) -> int:
        """Wait for the first end of any of the engine's containers; return its exit code.

        Raises:
            HostError: node_unreachable, when one of its nodes was silent for too long; node_restarted; link_down, when
                they no longer reach each other; rank_held; else as the runtime.
        """
        engine = self._engines.get(name)
        if engine is None or engine.is_local:
            return await self._local.wait(name)
        losses = []
        if len(engine.members) > 1:
            losses.append(group_end.link_loss_of(self._runtimes, engine, self.watch_link, self.on_link, self._silent_s))
            losses.append(group_end.held_rank_of(engine, self._is_held))
        first = await group_end.wait_for_first_end(self._runtimes, engine, self._find, self._silent_s, *losses)
        if len(engine.members) > 1:
            self._ends[name] = first
        return first.code

    async def pids(self, name: str) -> set[int]:
        """Host process ids of the engine's containers on this box; another box's ids mean nothing here."""
        engine = self._engines.get(name)
        if engine is None or engine.is_local:
            return await self._local.pids(name)
        here = [member.container for member in engine.members if member.node == LOCAL and member.container]
        found = await asyncio.gather(*(self._local.pids(each) for each in here))
        return set().union(*found)

    async def _is_held(self, member: groups.Member) -> bool:
        if member.node != LOCAL:
            return member.container in self.held(member.node)
        with suppress(HostError):
            return any(map(is_held, await self._local.pids(member.container or member.head)))
        return False

    async def _find(self, member: groups.Member) -> str | None:
        """Find the container of a member that was not seen yet, as its node was silent."""
        if member.container is not None:
            return member.container
        found = await self._runtimes.list_on(member.node, self._owner)
        return next((each.name for each in found if each.labels.get(LABEL_HEAD) == member.head), None)

    async def _on_return(self, node: str) -> None:
        """Forward the ports of the engines that serve there again. Raises HostError."""
        for engine in list(self._engines.values()):
            if engine.head_node == node and engine.port is not None:
                await self._others.forward(node, engine.port)


def _removal_of(container: ContainerInfo) -> PendingRemoval:
    return PendingRemoval(node=container.node, head=container.name, container=container.name)
