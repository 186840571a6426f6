"""Comparison of two runs, side by side.

Rule: two runs are no experiment. A change is shown and never claimed; refused comparisons have no change.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from sparkdash.bench.judge.judgement import ArmFigure
from sparkdash.bench.judge.metrics import BenchMetric
from sparkdash.bench.report import blocks
from sparkdash.bench.report.blocks import (
    DASH,
    Block,
    Grid,
    Heading,
    ReportPage,
    TableCell,
    TextBlock,
    Tone,
    decimals,
    format_change,
    format_spread,
)
from sparkdash.bench.report.comparability import flags_between_runs, paired_arms
from sparkdash.bench.report.page import SIMULATED
from sparkdash.bench.report.report import ComparisonFlag, Report
from sparkdash.bench.run import CellKey
from sparkdash.domain.base import Frozen

NO_VERDICT = "A change between two runs is no verdict: the days differ too. `sparkdash ab` measures one."


class CellPair(Frozen):
    """Figures of one profile's cell in both runs."""

    profile: str
    key: CellKey
    old: ArmFigure | None
    new: ArmFigure | None
    change: float | None
    """Value of new / old - 1; None when one is not measured, or the two may not be compared."""


class RunDifference(Frozen):
    """Common profiles of two runs with their figures."""

    old: str
    new: str
    suites: tuple[str, str]
    """Suites, old and new, by name, version and hash. Other suites mean other prompts, even at equal lengths."""
    lengths: dict[str, int] = {}
    """Names of the old run's output lengths, in tokens."""
    metric: BenchMetric
    simulated: bool
    """True if at least one run was simulated."""
    flags: tuple[ComparisonFlag, ...]
    pairs: tuple[CellPair, ...]

    @property
    def same_suite(self) -> bool:
        """Whether both runs had the same prompts."""
        return self.suites[0] == self.suites[1]

    @property
    def refused(self) -> bool:
        """Whether nothing in the two may be compared."""
        return _refuse_all(self.flags)


def _refuse_all(flags: Iterable[ComparisonFlag]) -> bool:
    return any(flag.refuses and not flag.arm for flag in flags)


def compare_runs(old: Report, new: Report, metric: BenchMetric = BenchMetric.DECODE) -> RunDifference:
    flags = flags_between_runs(new, old)
    return RunDifference(
        old=old.run.id,
        new=new.run.id,
        suites=(old.run.suite_name, new.run.suite_name),
        lengths=old.run.lengths,
        metric=metric,
        simulated=old.simulated or new.simulated,
        flags=flags,
        pairs=tuple(_pair_cells(old, new, metric, flags)),
    )


def _pair_cells(old: Report, new: Report, metric: BenchMetric, flags: Sequence[ComparisonFlag]) -> Iterator[CellPair]:
    """Pair the figures of every cell that at least one run measured; a refused pair has no change."""
    apart = {arm.name for arm in new.arms} if _refuse_all(flags) else {flag.arm for flag in flags if flag.refuses}
    keys = dict.fromkeys((*old.planned(), *new.planned()))
    for ours, theirs in paired_arms(new, old):
        for key in keys:
            before, after = old.figure(metric, theirs.name, key), new.figure(metric, ours.name, key)
            if before is None and after is None:
                continue
            assumed = new.is_assumed(metric, ours.name, key) or old.is_assumed(metric, theirs.name, key)
            moved = None if assumed or ours.name in apart else _change(before, after)
            yield CellPair(profile=ours.profile, key=key, old=before, new=after, change=moved)


def difference_page(found: RunDifference) -> ReportPage:
    return ReportPage((*_opening(found), *_profile_tables(found), TextBlock((NO_VERDICT,), Tone.DIM)))


def _opening(found: RunDifference) -> Iterator[Block]:
    yield Heading(1, f"{found.new} beside {found.old}")
    if found.simulated:
        yield TextBlock((SIMULATED,), Tone.WORSE)
    yield TextBlock((f"Before is {found.old}, after is {found.new}.",))
    yield TextBlock((f"{found.metric.unit} is {found.metric.value}: {found.metric.definition}",), Tone.DIM)
    for flag in found.flags:
        who = f" ({flag.arm})" if flag.arm else ""
        yield TextBlock((f"{'Refused' if flag.refuses else 'Mind'}{who}: {flag.text}",), Tone.WORSE)
    if not found.pairs:
        yield TextBlock(("No profile was measured in both.",))


def _profile_tables(found: RunDifference) -> Iterator[Block]:
    words = blocks.length_names([one.key.output for one in found.pairs], found.lengths) if found.same_suite else {}
    before, after = (f": {suite}" * (not found.same_suite) for suite in found.suites)
    head = ("Cell", f"Before{before}", f"After{after}", "Change")
    for profile in dict.fromkeys(one.profile for one in found.pairs):
        rows = tuple(_row(one, found, words) for one in found.pairs if one.profile == profile)
        yield Heading(2, profile)
        yield Grid(head=head, rows=rows)


def _change(before: ArmFigure | None, after: ArmFigure | None) -> float | None:
    if before is None or after is None or not before.median or after.median is None:
        return None
    return after.median / before.median - 1


def _row(one: CellPair, found: RunDifference, words: dict[int, str]) -> tuple[TableCell, ...]:
    """Build a row. A missing figure is blank; in different suites it is a dash, as it can never be filled."""
    lacks = "" if found.same_suite else DASH
    return (
        TableCell(blocks.cell_name(one.key, words)),
        *(TableCell(format_spread(each, decimals(found.metric)) if each else lacks) for each in (one.old, one.new)),
        TableCell(DASH if one.change is None else format_change(one.change), Tone.DIM),
    )
