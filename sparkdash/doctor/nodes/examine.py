"""Run of the checks of nodes: from their names to findings.

Owns: the choice of checks, the finding about a silent box, and keeping the other checks going when one fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from sparkdash.doctor.check import CheckResult
from sparkdash.doctor.choice import choose_checks, results_of
from sparkdash.doctor.nodes import checks  # noqa: F401 - importing it fills the register
from sparkdash.doctor.nodes.check import NODE_CHECKS, NodeCheck
from sparkdash.doctor.nodes.facts import BoxFacts, PairFacts
from sparkdash.doctor.nodes.probe import NodesProbe
from sparkdash.domain.finding import NodeFinding, Status
from sparkdash.errors import SparkdashError


async def examine_nodes(probe: NodesProbe, names: Iterable[str] = ()) -> tuple[NodeFinding, ...]:
    """Read all boxes and run all checks, or those named.

    Raises:
        AdmissionError: no check has that name.
    """
    chosen = node_checks_named(names)
    return judge_pairs(await probe.look(chosen), chosen)


def node_checks_named(names: Iterable[str]) -> tuple[NodeCheck, ...]:
    """Checks of these names, in the order of the register; all without names. Raises AdmissionError."""
    return choose_checks(NODE_CHECKS, names, listed_by="sparkdash nodes check --list")


def judge_pairs(pairs: Sequence[PairFacts], chosen: Sequence[NodeCheck]) -> tuple[NodeFinding, ...]:
    """Run these checks on these pairs, without any I/O: this box first, then each node and its pairing."""
    return tuple(_findings(pairs, chosen))


def _findings(pairs: Sequence[PairFacts], chosen: Sequence[NodeCheck]) -> Iterator[NodeFinding]:
    if pairs:
        yield from _of_box(pairs[0].here, chosen)
    for pair in pairs:
        yield from _of_box(pair.there, chosen)
        if pair.here.problem is None and pair.there.problem is None:
            both = (pair.here.name, pair.there.name)
            for each in chosen:
                yield from _named(each, both, _said_of_pair(each, pair))


def _of_box(box: BoxFacts, chosen: Sequence[NodeCheck]) -> Iterator[NodeFinding]:
    if box.problem is not None:
        yield _unasked(box, box.problem)
        return
    for each in chosen:
        yield from _named(each, (box.name,), _said_of_box(each, box))


def _unasked(box: BoxFacts, problem: SparkdashError) -> NodeFinding:
    again = f"sparkdash nodes check {box.name}"
    fix = problem.hint or f"Repair the connection, then: {again}"
    return NodeFinding(name="reachable", status=Status.FAIL, evidence=problem.message, fix=fix, nodes=(box.name,))


def _named(each: NodeCheck, nodes: tuple[str, ...], said: Iterator[CheckResult]) -> Iterator[NodeFinding]:
    for one in said:
        yield NodeFinding(name=each.name, status=one.status, evidence=one.evidence, fix=one.fix, nodes=nodes)


def _said_of_box(each: NodeCheck, box: BoxFacts) -> Iterator[CheckResult]:
    if each.box is not None:
        yield from results_of(each.box(box))


def _said_of_pair(each: NodeCheck, pair: PairFacts) -> Iterator[CheckResult]:
    if each.pair is not None:
        yield from results_of(each.pair(pair))
