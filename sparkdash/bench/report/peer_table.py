"""Figures of another program beside ours, cell by cell, with the definitions that differ.

Owns: which of our figures corresponds to which of its, and the page. Must not know: the other program's files.
Rule: a difference is shown for each cell; that two clients agree is said of the decode rate alone, whose definitions
are alike.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import median

from sparkdash.bench.judge.metrics import BenchMetric, figures_by_launch
from sparkdash.bench.report import cell_names
from sparkdash.bench.report.blocks import (
    DASH,
    Block,
    Grid,
    Heading,
    ReportPage,
    TableCell,
    TextBlock,
    Tone,
    format_change,
)
from sparkdash.bench.report.page import SIMULATED
from sparkdash.bench.report.peer_tools import OURS, Figures, PeerMetric, PeerTool
from sparkdash.bench.results import Results
from sparkdash.bench.run import CellKey
from sparkdash.domain.base import Frozen

AGREES = 0.01
"""Largest relative difference at which two clients agree."""

PROMPTS = (
    "Each client has prompts of its own: prompt and ttft compare only if the other's tokenizer is the model's. "
    "Only decode is expected to agree."
)


class PeerRow(Frozen):
    """One figure of one cell, by both clients; None: not measured."""

    key: CellKey
    metric: PeerMetric
    ours: float | None
    theirs: float | None
    assumed: bool = False
    """Whether our figure hangs on an estimate of the first chunk's tokens."""

    @property
    def difference(self) -> float | None:
        """Ours over theirs, less one."""
        return None if not self.theirs or self.ours is None else self.ours / self.theirs - 1


class PeerComparison(Frozen):
    """Both clients' figures on one engine."""

    run: str
    """Id of our run."""
    tool: str
    version: str | None
    simulated: bool
    rows: tuple[PeerRow, ...]
    definitions: dict[str, tuple[str, str]]
    """Definition of each figure, ours and theirs."""
    failures: tuple[str, ...] = ()
    """Cells that the other program did not measure, with its words."""

    @property
    def decode(self) -> tuple[PeerRow, ...]:
        """Rows of the decode rate that both have."""
        return tuple(one for one in self.rows if one.metric is PeerMetric.DECODE and one.difference is not None)


def compare(
    results: Results,
    tool: PeerTool,
    theirs: Mapping[CellKey, Figures],
    *,
    version: str | None,
    failures: tuple[str, ...],
) -> PeerComparison:
    """Set the figures beside each other."""
    rows = tuple(
        PeerRow(
            key=key, metric=metric, ours=value, theirs=found.get(metric),
            assumed=metric is PeerMetric.DECODE and _is_assumed(results, key),
        )
        for key, found in theirs.items()
        for metric, value in _own_figures(results, key).items()
    )  # fmt: skip
    shown = {row.metric for row in rows}
    return PeerComparison(
        run=results.run.id, tool=tool.name, version=version, simulated=results.run.simulated, rows=rows,
        definitions={one.value: (OURS[one], tool.definitions[one]) for one in PeerMetric if one in shown},
        failures=failures,
    )  # fmt: skip


def _is_assumed(results: Results, key: CellKey) -> bool:
    return any(one.k1_assumed for one in results.good(results.run.baseline, key))


def _own_figures(results: Results, key: CellKey) -> dict[PeerMetric, float | None]:
    arm = results.run.baseline
    good = results.good(arm, key)
    firsts = [(one.prompt_tokens, one.ttft_s) for one in good if one.ttft_s]
    found = {
        PeerMetric.DECODE: _middle([rate for one in good if (rate := one.decode_tok_s)]),
        PeerMetric.PROMPT: _middle([tokens / seconds for tokens, seconds in firsts if tokens]),
        PeerMetric.TTFT: _middle([seconds for _, seconds in firsts]),
    }
    if key.concurrency > 1:
        launches = figures_by_launch(results, arm, key, BenchMetric.AGGREGATE)
        found[PeerMetric.AGGREGATE] = _middle([value for ones in launches.values() for value in ones.values()])
    return found


def _middle(values: list[float]) -> float | None:
    return median(values) if values else None


def comparison_page(found: PeerComparison) -> ReportPage:
    """Build the page: figures, definitions, the agreement of the decode rates."""
    return ReportPage(tuple(_blocks(found)))


def _blocks(found: PeerComparison) -> Iterator[Block]:
    yield Heading(1, f"sparkdash beside {found.tool} {found.version or ''}".rstrip())
    if found.simulated:
        yield TextBlock((SIMULATED,), Tone.WORSE)
    yield TextBlock((f"The same engine, one client after the other. sparkdash's run is {found.run}.",))
    rows = tuple(_row(one) for one in found.rows)
    yield Grid(head=("Cell", "Figure", "Unit", "sparkdash", found.tool, "Difference"), rows=rows, right=True)
    yield TextBlock((PROMPTS,), Tone.DIM)
    if any(one.assumed for one in found.rows):
        yield TextBlock(("~ hangs on an estimate: the server does not count each chunk.",), Tone.DIM)
    for failure in found.failures:
        yield TextBlock((failure,), Tone.WORSE)
    yield Heading(2, "What each divides")
    for name, (ours, theirs) in found.definitions.items():
        yield TextBlock((f"{name}, sparkdash: {ours}", f"{name}, {found.tool}: {theirs}"))
    yield TextBlock((agreement(found),))


def _row(one: PeerRow) -> tuple[TableCell, ...]:
    digits = 3 if one.metric is PeerMetric.TTFT else 1
    values = [DASH if value is None else f"{value:.{digits}f}" for value in (one.ours, one.theirs)]
    difference = DASH if one.difference is None else format_change(one.difference, 2)
    ours = f"~{values[0]}" if one.assumed else values[0]
    words = (cell_names.short_cell_name(one.key, {}), one.metric.value, one.metric.unit, ours, values[1], difference)
    return tuple(TableCell(text) for text in words)


def agreement(found: PeerComparison) -> str:
    """Say in how many cells the decode rates agree, and where they differ most."""
    rows = found.decode
    if not rows:
        return f"No decode rate was measured by both, so nothing is verified by {found.tool}."
    near = sum(abs(one.difference or 0.0) <= AGREES for one in rows)
    worst = max(rows, key=lambda one: abs(one.difference or 0.0))
    said = f"The decode rates agree within {AGREES:.0%} in {near} of {len(rows)} cells"
    most = f"{format_change(worst.difference or 0.0, 2)} ({cell_names.short_cell_name(worst.key, {})})"
    return f"{said}; the largest difference is {most}."
