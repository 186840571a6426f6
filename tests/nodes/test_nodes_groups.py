"""Containers on several nodes that are one engine: every combination of states, and rules for all listings."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkdash.domain.container import (
    LABEL_FINGERPRINT,
    LABEL_HEAD,
    LABEL_NODES,
    LABEL_PORT,
    ContainerInfo,
    ContainerState,
)
from sparkdash.domain.node import LOCAL
from sparkdash.nodes.cluster.groups import EngineMembers, Member, alone, group_containers

HEAD, WORKER = "sparkdash-big", "sparkdash-big-worker"
STATES = (None, *ContainerState)
"""None: there is no such container."""
RUNNING, EXITED, CREATED = ContainerState.RUNNING, ContainerState.EXITED, ContainerState.CREATED


def head(
    state: ContainerState = RUNNING, *, node: str = LOCAL, nodes: str = "local,spark2", at: float = 1.0
) -> ContainerInfo:
    labels = {LABEL_NODES: nodes, LABEL_PORT: "18001", LABEL_FINGERPRINT: "f"}
    return ContainerInfo(id=f"{node}h{at}", name=HEAD, state=state, labels=labels, node=node, started_at=at)


def worker(
    state: ContainerState = RUNNING, *, node: str = "spark2", name: str = WORKER, launch: str = "f"
) -> ContainerInfo:
    labels = {LABEL_NODES: "local,spark2", LABEL_HEAD: HEAD, LABEL_FINGERPRINT: launch}
    return ContainerInfo(id=f"{node}w{name}", name=name, state=state, labels=labels, node=node)


@pytest.mark.parametrize(("heads", "workers"), list(itertools.product(STATES, STATES)))
def test_an_engine_runs_exactly_while_its_head_runs_and_its_worker_may_run(
    heads: ContainerState | None, workers: ContainerState | None
) -> None:
    listing = {LOCAL: [head(heads)] if heads else [], "spark2": [worker(workers)] if workers else []}
    found = group_containers(listing, {})
    if heads is None:
        assert not found.engines
        assert [each.name for each in found.orphans] == ([WORKER] if workers else [])
        return
    (engine,) = found.engines
    lives = workers in (RUNNING, ContainerState.UNKNOWN)
    assert engine.state is (EXITED if heads is RUNNING and not lives else heads)
    assert engine.as_container().name == HEAD
    assert not found.orphans


@pytest.mark.parametrize("heads", list(ContainerState))
def test_nothing_is_concluded_from_a_silent_node(heads: ContainerState) -> None:
    (engine,) = group_containers({LOCAL: [head(heads)], "spark2": None}, {}).engines
    assert engine.state is heads
    assert engine.members.members == (Member(HEAD, LOCAL, HEAD), Member(HEAD, "spark2", None))
    assert engine.members.port == 18001


def test_a_worker_whose_heads_node_is_silent_is_no_orphan() -> None:
    lone = worker(node=LOCAL).replace(labels={LABEL_NODES: "spark2,local", LABEL_HEAD: HEAD})
    assert not group_containers({LOCAL: [lone], "spark2": None}, {}).orphans
    assert group_containers({LOCAL: [lone], "spark2": []}, {}).orphans == (lone,)


def test_a_node_that_is_no_longer_registered_counts_as_silent() -> None:
    (engine,) = group_containers({LOCAL: [head()]}, {}).engines
    assert engine.state is RUNNING


def test_a_worker_of_an_engine_that_starts_is_no_orphan_while_its_head_is_still_to_come() -> None:
    starting = EngineMembers((Member(HEAD, LOCAL, HEAD), Member(HEAD, "spark2", WORKER)))
    listing = {LOCAL: [], "spark2": [worker(), worker(name="other-worker")]}
    assert [each.name for each in group_containers(listing, {HEAD: starting}).orphans] == ["other-worker"]


def test_a_worker_on_a_node_that_the_running_engine_does_not_use_is_an_orphan() -> None:
    found = group_containers({LOCAL: [head(nodes="local")], "spark2": [worker()]}, {HEAD: alone(LOCAL, HEAD)})
    assert found.orphans == (worker(),)


def test_a_worker_of_another_launch_does_not_stand_for_the_one_that_is_gone() -> None:
    found = group_containers({LOCAL: [head()], "spark2": [worker(launch="old")]}, {})
    assert found.engines[0].state is EXITED
    assert [each.name for each in found.orphans] == [WORKER]


def test_of_two_workers_on_a_node_the_one_that_runs_counts() -> None:
    old = worker(EXITED, name="old-worker")
    found = group_containers({LOCAL: [head()], "spark2": [old, worker()]}, {})
    assert found.engines[0].state is RUNNING
    assert found.orphans == (old,)


def test_of_two_heads_with_one_name_the_known_one_counts_whatever_the_clocks_say() -> None:
    here, there = head(nodes="local", at=5.0), head(node="spark2", nodes="spark2", at=3600.0)
    listing = {LOCAL: [here], "spark2": [there]}
    assert group_containers(listing, {HEAD: alone(LOCAL, HEAD)}).doubles == (there,)
    assert group_containers(listing, {}).doubles == (here,)
    assert group_containers({LOCAL: [], "spark2": [there]}, {HEAD: alone(LOCAL, HEAD)}).doubles == (there,)


NODES = (LOCAL, "spark2", "spark3")
NAMES = ("one", "two")


@st.composite
def listings(draw: st.DrawFn) -> dict[str, list[ContainerInfo] | None]:
    """Any containers on any nodes, with any labels, silent nodes among them."""
    found: dict[str, list[ContainerInfo] | None] = {}
    for node in NODES[: draw(st.integers(1, 3))]:
        if node != LOCAL and draw(st.booleans()):
            found[node] = None
            continue
        found[node] = [
            ContainerInfo(
                id=f"{node}{number}",
                name=draw(st.sampled_from(NAMES))
                if not (of := draw(st.sampled_from((None, *NAMES))))
                else f"w{number}",
                state=draw(st.sampled_from(list(ContainerState))),
                node=node,
                started_at=draw(st.sampled_from((None, 1.0, 2.0))),
                labels={
                    LABEL_NODES: ",".join(draw(st.lists(st.sampled_from(NODES), min_size=1, max_size=2, unique=True))),
                    LABEL_FINGERPRINT: draw(st.sampled_from("fg")),
                    **({LABEL_HEAD: of} if of else {}),
                },
            )
            for number in range(draw(st.integers(0, 3)))
        ]
    return found


@given(listings())
def test_no_container_is_lost_and_none_is_counted_twice(listing: dict[str, list[ContainerInfo] | None]) -> None:
    found = group_containers(listing, {})
    seen = [each.id for node in listing.values() for each in node or ()]
    heads = [group.head.id for group in found.engines]
    removed = [each.id for each in (*found.orphans, *found.doubles)]
    assert len(set(heads + removed)) == len(heads + removed)
    assert set(heads + removed) <= set(seen)
    names = [group.head.name for group in found.engines]
    assert len(set(names)) == len(names)
    assert {group.members.head for group in found.engines} == set(names)


@given(listings())
def test_silence_never_ends_anything(listing: dict[str, list[ContainerInfo] | None]) -> None:
    """A silent node makes no engine look ended and no worker orphaned."""
    heard = {node: seen if seen is not None else [] for node, seen in listing.items()}
    ended = {g.head.id for g in group_containers(listing, {}).engines if g.state is not g.head.state}
    ended_if_heard = {g.head.id for g in group_containers(heard, {}).engines if g.state is not g.head.state}
    assert ended <= ended_if_heard
    orphans = {each.id for each in group_containers(listing, {}).orphans}
    assert orphans <= {each.id for each in group_containers(heard, {}).orphans}
