"""Run of the checks of nodes: from their names to findings.

Owns: the choice of checks, the finding about a silent box, and keeping the other checks going when one fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from sparkdash.catalog.catalog import nearest
from sparkdash.doctor.check import CheckResult, unknown
from sparkdash.doctor.facts import UnreadFact
from sparkdash.doctor.nodes import checks  # noqa: F401 - importing it fills the register
from sparkdash.doctor.nodes.check import NODE_CHECKS, NodeCheck
from sparkdash.doctor.nodes.facts import BoxFacts, PairFacts
from sparkdash.doctor.nodes.probe import NodesProbe
from sparkdash.domain.finding import NodeFinding, Status
from sparkdash.errors import AdmissionError, SparkdashError


async def examine_nodes(probe: NodesProbe, names: Iterable[str] = ()) -> tuple[NodeFinding, ...]:
    """Read all boxes and run all checks, or those named.

    Raises:
        AdmissionError: no check has that name.
    """
    chosen = node_checks_named(names)
    return judge_pairs(await probe.look(chosen), chosen)


def node_checks_named(names: Iterable[str]) -> tuple[NodeCheck, ...]:
    """Checks of these names, in the order of the register; all without names. Raises AdmissionError."""
    wanted = list(names)
    for name in wanted:
        if name not in NODE_CHECKS:
            close = nearest(name, NODE_CHECKS)
            hint = f"Did you mean {' or '.join(close)}?" if close else "`sparkdash nodes check --list` lists them."
            raise AdmissionError(f"There is no check {name!r} of nodes.", code="check_not_found", hint=hint)
    return tuple(each for each in NODE_CHECKS.values() if not wanted or each.name in wanted)


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
    fix = problem.hint or f"Mend the connection, then: {again}"
    return NodeFinding(name="reachable", status=Status.FAIL, evidence=problem.message, fix=fix, nodes=(box.name,))


def _named(each: NodeCheck, nodes: tuple[str, ...], said: Iterator[CheckResult]) -> Iterator[NodeFinding]:
    for one in said:
        yield NodeFinding(name=each.name, status=one.status, evidence=one.evidence, fix=one.fix, nodes=nodes)


def _said_of_box(each: NodeCheck, box: BoxFacts) -> Iterator[CheckResult]:
    if each.box is not None:
        yield from _caught(each.box(box))


def _said_of_pair(each: NodeCheck, pair: PairFacts) -> Iterator[CheckResult]:
    if each.pair is not None:
        yield from _caught(each.pair(pair))


def _caught(said: Iterator[CheckResult]) -> Iterator[CheckResult]:
    try:
        yield from said
    except UnreadFact as why:
        yield unknown(f"{why}.")
    except Exception as error:  # noqa: BLE001 - an unforeseen reading must not hide the other findings
        yield unknown(f"The check itself failed ({type(error).__name__}: {error}).")
