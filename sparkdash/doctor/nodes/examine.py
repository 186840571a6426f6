"""Examination of several boxes: reads what the checks declare, one script per box, and judges it."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import sparkdash.doctor.nodes.checks  # noqa: F401 - fills the register
from sparkdash.catalog import load_catalog
from sparkdash.doctor.check import CHECKS, CheckResult, Unreadable, choose_checks, refuse_unknown, results_of
from sparkdash.doctor.nodes.pair import NODE_CHECKS, BoxReadings, ClusterReadings, NodeCheck, PairReadings
from sparkdash.doctor.probe import Probe, examine, read_within
from sparkdash.domain.cluster import Topology
from sparkdash.domain.node import LOCAL, Finding, Node, NodeFinding, Status
from sparkdash.domain.profile import Profile
from sparkdash.errors import SparkdashError
from sparkdash.nodes.boxes import Box, ask_box, open_boxes
from sparkdash.nodes.node_file import nodes_file, read_nodes, read_topology
from sparkdash.settings import Settings

READINGS = ("sparkdash.doctor.nodes.remote_readings",)
READ_S = 40.0
"""Time limit of one box's readings, each of whose commands has 10 s."""


@dataclass(frozen=True, kw_only=True)
class NodesProbe:
    """Boxes and sources of the readings."""

    settings: Settings
    here: Box
    nodes: Sequence[tuple[Node, Box]]
    profiles: Callable[[], Sequence[Profile]]
    declared: Topology | None = None

    async def look(self, checks: Sequence[NodeCheck]) -> tuple[Sequence[PairReadings], ClusterReadings]:
        """Read what these checks need; never raises for a box that cannot be asked."""
        profiles = await read_within("The profiles", self.profiles)
        sections = sorted({section for check in checks for section in check.reads})
        entries: list[tuple[Node | None, Box]] = [(None, self.here), *self.nodes]
        request = {"sections": sections, "images": _images(profiles), "runtime": self.settings.runtime}
        found = await asyncio.gather(
            *(self._read(node, box, {**request, "peers": self._peers(box)}) for node, box in entries)
        )
        cluster = ClusterReadings([found[0], *(each for each in found[1:] if each.problem is None)], self.declared)
        silent = [(found[0], each) for each in found[1:] if each.problem is not None]
        pairs = [PairReadings(one, other, profiles) for one, other in (*cluster.cabled(), *silent)]
        return pairs, cluster

    def _peers(self, box: Box) -> list[str]:
        others = [each for each in (self.here, *(other for _, other in self.nodes)) if each is not box and each.facts]
        return [link.address for each in others if each.facts for link in each.facts.links if link.address]

    async def _read(self, node: Node | None, box: Box, request: dict[str, Any]) -> BoxReadings:
        if box.silent is not None:
            return BoxReadings(box.name, node, problem=box.silent, settings=self.settings)
        try:
            sections = await ask_box(box, READINGS, request, deadline_s=READ_S)
        except SparkdashError as error:
            return BoxReadings(box.name, node, box.facts, problem=error, settings=self.settings)
        return BoxReadings(box.name, node, box.facts, sections, settings=self.settings)


def _images(profiles: Sequence[Profile] | Unreadable) -> list[str]:
    return [] if isinstance(profiles, Unreadable) else sorted({each.image for each in profiles if each.image})


async def examine_nodes(probe: NodesProbe, names: Iterable[str] = ()) -> tuple[NodeFinding, ...]:
    """Read all boxes and run all checks, or those named. Raises AdmissionError: no check has that name."""
    chosen = node_checks_named(names)
    return tuple(judge_pairs(*await probe.look(chosen), chosen))


def node_checks_named(names: Iterable[str]) -> tuple[NodeCheck, ...]:
    """Checks of these names, in the order of the register; all without names. Raises AdmissionError."""
    return choose_checks(NODE_CHECKS, names)


def judge_pairs(
    pairs: Sequence[PairReadings], cluster: ClusterReadings, chosen: Sequence[NodeCheck]
) -> Iterator[NodeFinding]:
    """Run these checks without any I/O: on each box, followed by its pairings with those before, then on all."""
    told: set[str] = set()
    for pair in pairs:
        for box in (pair.here, pair.there):
            if box.name not in told:
                told.add(box.name)
                yield from _of_box(box, chosen)
        if pair.here.problem is None and pair.there.problem is None:
            both = (pair.here.name, pair.there.name)
            for each in chosen:
                if each.pair is not None:
                    yield from _named(each, both, each.pair(pair))
    if len(cluster.boxes) > 2 or cluster.declared:
        yield from _of_all(cluster, chosen)


def _of_all(cluster: ClusterReadings, chosen: Sequence[NodeCheck]) -> Iterator[NodeFinding]:
    names = tuple(box.name for box in cluster.boxes)
    for each in chosen:
        if each.cluster is not None:
            yield from _named(each, names, each.cluster(cluster))


def _of_box(box: BoxReadings, chosen: Sequence[NodeCheck]) -> Iterator[NodeFinding]:
    if (problem := box.problem) is not None:
        fix = problem.hint or f"Repair the connection, then: sparkdash doctor --node {box.name}"
        yield NodeFinding(name="reachable", status=Status.FAIL, evidence=problem.message, fix=fix, nodes=(box.name,))
        return
    for each in chosen:
        if each.box is not None:
            yield from _named(each, (box.name,), each.box(box))


def _named(each: NodeCheck, nodes: tuple[str, ...], said: Iterator[CheckResult]) -> Iterator[NodeFinding]:
    for one in results_of(said):
        yield NodeFinding(name=each.name, status=one.status, evidence=one.evidence, fix=one.fix, nodes=nodes)


async def examine_all(probe: Probe, names: Iterable[str] = ()) -> tuple[tuple[Finding, ...], tuple[NodeFinding, ...]]:
    """Examine this box and, at the same time, the registered nodes: findings of each, all or of the checks named.

    A check of nodes that this box has under the same name is left out for this box.
    Raises AdmissionError: no check has that name.
    """
    wanted = list(names)
    nodes, problem = registered_nodes()
    refuse_unknown(wanted, {**CHECKS, **(NODE_CHECKS if nodes else {})})
    here, there = await asyncio.gather(_examine_box(probe, wanted), _examine_nodes(probe, nodes, wanted))
    others = tuple(each for each in there if each.nodes != (LOCAL,) or each.name not in CHECKS)
    return (*here, *(() if wanted else problem)), others


async def _examine_box(probe: Probe, wanted: Sequence[str]) -> tuple[Finding, ...]:
    of_box = [name for name in wanted if name in CHECKS]
    return await examine(probe, of_box) if of_box or not wanted else ()


async def _examine_nodes(probe: Probe, nodes: Sequence[Node], wanted: Sequence[str]) -> tuple[NodeFinding, ...]:
    of_nodes = [name for name in wanted if name in NODE_CHECKS]
    if not nodes or (wanted and not of_nodes):
        return ()
    return await examine_registered(probe.settings, nodes, of_nodes)


def check_list(names: Iterable[str] = ()) -> list[tuple[str, str]]:
    """Name and subject of every check, or of those named; of nodes only where there are some. Raises AdmissionError."""
    wanted = list(names)
    nodes, _ = registered_nodes()
    told = {each.name: each.about for each in CHECKS.values()}
    if nodes:
        told |= {each.name: each.about for each in NODE_CHECKS.values() if each.name not in told}
    refuse_unknown(wanted, told)
    return [(name, about) for name, about in told.items() if not wanted or name in wanted]


async def examine_registered(
    settings: Settings, nodes: Sequence[Node], names: Iterable[str] = ()
) -> tuple[NodeFinding, ...]:
    async with open_boxes(nodes, settings.runtime, str(settings.hf_home.expanduser())) as (here, others):
        probe = NodesProbe(
            settings=settings,
            here=here,
            nodes=others,
            profiles=partial(_profiles_for_several, settings),
            declared=read_topology(nodes_file()),
        )
        return await examine_nodes(probe, names)


def registered_nodes() -> tuple[tuple[Node, ...], tuple[Finding, ...]]:
    """Return the nodes of the registry; without a readable registry none, and the finding that says why."""
    try:
        return read_nodes(nodes_file()), ()
    except SparkdashError as error:
        return (), (Finding(name="nodes", status=Status.FAIL, evidence=error.message, fix=error.hint),)


def with_node_names(found: Iterable[NodeFinding], here: str) -> list[NodeFinding]:
    """Return copies whose names tell the node too: `spark2: podman`, `spark2 pair: mtu`; this box is `here`."""
    return [each.replace(name=f"{_about(each, here)}: {each.name}") for each in found]


def _about(finding: NodeFinding, here: str) -> str:
    if len(finding.nodes) > 2:
        return "all"
    if len(finding.nodes) > 1:
        one, other = finding.nodes
        return f"{other} pair" if one == LOCAL else f"{one}-{other} pair"
    return here if finding.nodes[0] == LOCAL else finding.nodes[0]


def _profiles_for_several(settings: Settings) -> list[Profile]:
    profiles = load_catalog(settings.profile_folders()).profiles.values()
    return [each for each in profiles if each.nodes > 1 and not each.cannot_run]
