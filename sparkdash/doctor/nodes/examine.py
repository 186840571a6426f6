"""Run of the checks of nodes: from their names to findings."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence

from sparkdash.catalog import load_catalog
from sparkdash.doctor.check import CHECKS, CheckResult, choose_checks, refuse_unknown, results_of
from sparkdash.doctor.nodes import box_checks, link_checks  # noqa: F401 - fill the register, in this order
from sparkdash.doctor.nodes.pair import NODE_CHECKS, BoxReadings, NodeCheck, PairReadings, TwoNodeProfile
from sparkdash.doctor.nodes.probe import NodesProbe
from sparkdash.doctor.probe import Probe, examine
from sparkdash.domain.node import LOCAL, Finding, Node, NodeFinding, Status
from sparkdash.errors import SparkdashError
from sparkdash.nodes.link.boxes import open_boxes
from sparkdash.nodes.node_file import nodes_file, read_nodes
from sparkdash.settings import Settings


async def examine_nodes(probe: NodesProbe, names: Iterable[str] = ()) -> tuple[NodeFinding, ...]:
    """Read all boxes and run all checks, or those named.

    Raises:
        AdmissionError: no check has that name.
    """
    chosen = node_checks_named(names)
    return judge_pairs(await probe.look(chosen), chosen)


def node_checks_named(names: Iterable[str]) -> tuple[NodeCheck, ...]:
    """Checks of these names, in the order of the register; all without names. Raises AdmissionError."""
    return choose_checks(NODE_CHECKS, names, listed_by="sparkdash doctor --list")


def judge_pairs(pairs: Sequence[PairReadings], chosen: Sequence[NodeCheck]) -> tuple[NodeFinding, ...]:
    """Run these checks on these pairs, without any I/O: this box first, then each node and its pairing."""
    return tuple(_findings(pairs, chosen))


def _findings(pairs: Sequence[PairReadings], chosen: Sequence[NodeCheck]) -> Iterator[NodeFinding]:
    if pairs:
        yield from _of_box(pairs[0].here, chosen)
    for pair in pairs:
        yield from _of_box(pair.there, chosen)
        if pair.here.problem is None and pair.there.problem is None:
            both = (pair.here.name, pair.there.name)
            for each in chosen:
                yield from _named(each, both, _said_of_pair(each, pair))


def _of_box(box: BoxReadings, chosen: Sequence[NodeCheck]) -> Iterator[NodeFinding]:
    if box.problem is not None:
        yield _unasked(box, box.problem)
        return
    for each in chosen:
        yield from _named(each, (box.name,), _said_of_box(each, box))


def _unasked(box: BoxReadings, problem: SparkdashError) -> NodeFinding:
    again = f"sparkdash doctor --node {box.name}"
    fix = problem.hint or f"Repair the connection, then: {again}"
    return NodeFinding(name="reachable", status=Status.FAIL, evidence=problem.message, fix=fix, nodes=(box.name,))


def _named(each: NodeCheck, nodes: tuple[str, ...], said: Iterator[CheckResult]) -> Iterator[NodeFinding]:
    for one in said:
        yield NodeFinding(name=each.name, status=one.status, evidence=one.evidence, fix=one.fix, nodes=nodes)


def _said_of_box(each: NodeCheck, box: BoxReadings) -> Iterator[CheckResult]:
    if each.box is not None:
        yield from results_of(each.box(box))


def _said_of_pair(each: NodeCheck, pair: PairReadings) -> Iterator[CheckResult]:
    if each.pair is not None:
        yield from results_of(each.pair(pair))


async def examine_all(probe: Probe, names: Iterable[str] = ()) -> tuple[tuple[Finding, ...], tuple[NodeFinding, ...]]:
    """Examine this box and, at the same time, the registered nodes: findings of each, all or of the checks named.

    A check of nodes that this box has under the same name is left out for this box.

    Raises:
        AdmissionError: no check has that name.
    """
    wanted = list(names)
    nodes, problem = registered_nodes()
    refuse_unknown(wanted, {**CHECKS, **(NODE_CHECKS if nodes else {})}, listed_by="sparkdash doctor --list")
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
    """Name and subject of every check, or of those named; checks of nodes only where there are nodes.

    Raises:
        AdmissionError: no check has that name.
    """
    wanted = list(names)
    nodes, _ = registered_nodes()
    told = {each.name: each.about for each in CHECKS.values()}
    if nodes:
        told |= {each.name: each.about for each in NODE_CHECKS.values() if each.name not in told}
    refuse_unknown(wanted, told, listed_by="sparkdash doctor --list")
    return [(name, about) for name, about in told.items() if not wanted or name in wanted]


async def examine_registered(
    settings: Settings, nodes: Sequence[Node], names: Iterable[str] = ()
) -> tuple[NodeFinding, ...]:
    """Connect to these nodes and run the checks of nodes. Raises AdmissionError: no check has that name."""
    async with open_boxes(nodes, settings.runtime, str(settings.hf_home.expanduser())) as boxes:
        probe = NodesProbe(
            settings=settings, here=boxes.here, nodes=boxes.nodes, profiles=_profiles_for_several(settings)
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
    if len(finding.nodes) > 1:
        return f"{finding.nodes[-1]} pair"
    return here if finding.nodes[0] == LOCAL else finding.nodes[0]


def _profiles_for_several(settings: Settings) -> Callable[[], list[TwoNodeProfile]]:
    def read() -> list[TwoNodeProfile]:
        profiles = load_catalog(settings.profile_folders()).profiles.values()
        several = [each for each in profiles if each.nodes > 1 and not each.cannot_run]
        return [TwoNodeProfile(each.name, each.image, each.env) for each in several]

    return read
