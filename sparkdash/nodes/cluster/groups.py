"""Groups: which containers on which nodes are one engine, and what state the engine is in.

A silent node's list is None: nothing is concluded from what is not seen there. Pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sparkdash.domain.container import (
    ENV_MARK,
    LABEL_FINGERPRINT,
    LABEL_HEAD,
    LABEL_NODES,
    LABEL_OWNER,
    LABEL_PORT,
    LABEL_PROFILE,
    ContainerInfo,
    ContainerSpec,
    ContainerState,
    engine_mark,
)
from sparkdash.domain.node import LOCAL

Listing = Mapping[str, Sequence[ContainerInfo] | None]
"""Containers with our owner label by node; None for a node that could not be asked."""

ENDED = frozenset({ContainerState.EXITED, ContainerState.CREATED})
"""States of a worker that computes nothing: ended, or made and never started."""


@dataclass(frozen=True, slots=True)
class Member:
    """Container of an engine, by its node and its head."""

    head: str
    node: str
    container: str | None
    """Name of the container; None while only its node is known, as that node is silent."""


@dataclass(frozen=True, slots=True)
class EngineMembers:
    """Containers of one engine that runs, the head first."""

    members: tuple[Member, ...]
    port: int | None = None

    @property
    def head(self) -> str:
        return self.members[0].head

    @property
    def head_node(self) -> str:
        return self.members[0].node

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(member.node for member in self.members)

    @property
    def is_local(self) -> bool:
        return all(member.node == LOCAL for member in self.members)


@dataclass(frozen=True, slots=True)
class EngineGroup:
    """A head as listed, and its workers as far as they can be seen."""

    head: ContainerInfo
    members: EngineMembers
    state: ContainerState

    def as_container(self) -> ContainerInfo:
        return self.head if self.head.state is self.state else self.head.replace(state=self.state)


@dataclass(frozen=True, slots=True)
class Grouped:
    """Containers with our owner label: engines, orphans and doubles."""

    engines: tuple[EngineGroup, ...] = ()
    orphans: tuple[ContainerInfo, ...] = ()
    """Workers that surely belong to no engine."""
    doubles: tuple[ContainerInfo, ...] = ()
    """Heads that share their name with the engine that counts, on another node."""


def members_of(spec: ContainerSpec) -> EngineMembers:
    parts = (spec, *spec.workers)
    return EngineMembers(tuple(Member(spec.name, part.node, part.name) for part in parts), spec.port)


def labelled(part: ContainerSpec, head: ContainerSpec, engine: EngineMembers, owner: str) -> ContainerSpec:
    """Return one container's own specification, with the labels and the mark by which it is found again."""
    labels = {LABEL_OWNER: owner, **part.labels, LABEL_NODES: ",".join(engine.nodes)}
    env = {ENV_MARK: engine_mark(owner, part.name), **part.env}
    if part is not head:
        shared = {key: value for key, value in head.labels.items() if key in (LABEL_PROFILE, LABEL_FINGERPRINT)}
        labels = {**shared, **labels, LABEL_HEAD: head.name}
    return part.replace(labels=labels, env=env, workers=())


def alone(node: str, container: str) -> EngineMembers:
    return EngineMembers((Member(container, node, container),))


def nodes_of(container: ContainerInfo) -> tuple[str, ...]:
    """Nodes of the container's engine, the serving one first, as its label says; its own node without a label."""
    named = tuple(filter(None, container.labels.get(LABEL_NODES, "").split(",")))
    return named or (container.node,)


def is_worker(container: ContainerInfo) -> bool:
    return LABEL_HEAD in container.labels


def group_containers(listing: Listing, running: Mapping[str, EngineMembers]) -> Grouped:
    """Find the engines among all containers. `running`: engines that this daemon started or adopted, by head."""
    containers = [each for found in filter(None, listing.values()) for each in found]
    workers = [each for each in containers if is_worker(each)]
    heads, doubles = _heads([each for each in containers if not is_worker(each)], running)
    groups = tuple(_group(head, workers, listing) for head in heads.values())
    orphans = tuple(each for each in _unclaimed(workers, groups) if _is_orphan(each, heads, listing, running))
    return Grouped(groups, orphans, doubles)


def _unclaimed(workers: Sequence[ContainerInfo], groups: Sequence[EngineGroup]) -> list[ContainerInfo]:
    claimed = {(member.node, member.container) for group in groups for member in group.members.members}
    return [each for each in workers if (each.node, each.name) not in claimed]


def _heads(
    heads: Iterable[ContainerInfo], running: Mapping[str, EngineMembers]
) -> tuple[dict[str, ContainerInfo], tuple[ContainerInfo, ...]]:
    """Heads by name, and those that another one of the name replaces."""
    kept: dict[str, ContainerInfo] = {}
    doubles: list[ContainerInfo] = []
    for head in sorted(heads, key=lambda each: _rank(each, running), reverse=True):
        known = running.get(head.name)
        if head.name in kept or (known is not None and known.head_node != head.node):
            doubles.append(head)
        else:
            kept[head.name] = head
    return kept, tuple(doubles)


def _rank(head: ContainerInfo, running: Mapping[str, EngineMembers]) -> tuple[bool, bool, float]:
    """The head that counts has the highest rank: the one that this daemon knows, one that runs, the youngest."""
    known = running.get(head.name)
    is_known = known is not None and known.head_node == head.node
    return is_known, head.state is ContainerState.RUNNING, head.started_at or 0.0


def _group(head: ContainerInfo, workers: Sequence[ContainerInfo], listing: Listing) -> EngineGroup:
    found: list[Member] = [Member(head.name, head.node, head.name)]
    state = head.state
    for node in nodes_of(head):
        if node == head.node:
            continue
        worker = _worker_on(node, head, workers)
        found.append(Member(head.name, node, worker.name if worker else None))
        was_asked = listing.get(node) is not None  # a silent node's worker is not known to have ended
        if state is ContainerState.RUNNING and was_asked and (worker is None or worker.state in ENDED):
            state = ContainerState.EXITED
    port = head.labels.get(LABEL_PORT, "")
    members = EngineMembers(tuple(found), int(port) if port.isdecimal() else None)
    return EngineGroup(head, members, state)


def _worker_on(node: str, head: ContainerInfo, workers: Sequence[ContainerInfo]) -> ContainerInfo | None:
    """The youngest worker of the head on this node, of the same launch."""
    launch = head.labels.get(LABEL_FINGERPRINT)
    ours = [
        each
        for each in workers
        if each.node == node and each.labels[LABEL_HEAD] == head.name and each.labels.get(LABEL_FINGERPRINT) == launch
    ]
    return max(ours, key=lambda each: (each.state not in ENDED, each.started_at or 0.0), default=None)


def _is_orphan(
    worker: ContainerInfo, heads: Mapping[str, ContainerInfo], listing: Listing, running: Mapping[str, EngineMembers]
) -> bool:
    """Whether a worker that no listed head claims belongs to no engine for sure."""
    head = worker.labels[LABEL_HEAD]
    if (known := running.get(head)) is not None:  # also while it starts: its head may appear in a moment
        return all(
            member.node != worker.node or member.container not in (None, worker.name) for member in known.members[1:]
        )
    return head in heads or listing.get(nodes_of(worker)[0]) is not None
