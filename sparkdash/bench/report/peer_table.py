"""Figures of another program beside ours, cell by cell, with the definitions that differ.

Owns: which of our figures corresponds to which of its, and the page. Must not know: the other program's files.
Rule: a difference is shown for each cell; that two clients agree is said of the decode rate alone, whose definitions
are alike.
Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from statistics import fmean, median

from sparkdash.bench.judge.metrics import BenchMetric, figures_by_launch
from sparkdash.bench.records import RequestSample
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
    """Figure of a cell by both clients; None: not measured."""

    key: CellKey
    metric: PeerMetric
    ours: float | None
    """Mean of our two measurements, before and after theirs."""
    theirs: float | None
    drift: float | None = None
    """Our second measurement over the first, less one: what the engine itself did meanwhile."""
    assumed: bool = False
    """Whether our figure hangs on an estimate of the first chunk's tokens."""

    @property
    def difference(self) -> float | None:
        """Ours over theirs, less one."""
        return None if not self.theirs or self.ours is None else self.ours / self.theirs - 1

    @property
    def is_steady(self) -> bool:
        """Whether the engine stood still enough for a comparison."""
        return self.drift is not None and abs(self.drift) <= AGREES


class PeerComparison(Frozen):
    """Both clients' figures on one engine."""

    runs: tuple[str, str]
    """Ids of our runs, before and after the other program."""
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
    before: Results,
    after: Results,
    tool: PeerTool,
    theirs: Mapping[CellKey, Figures],
    *,
    version: str | None,
    failures: tuple[str, ...],
) -> PeerComparison:
    """Set the figures beside each other."""
    rows = tuple(
        _compared(before, after, key, metric, found) for key, found in theirs.items() for metric in _metrics(key)
    )
    shown = {row.metric for row in rows}
    return PeerComparison(
        runs=(before.run.id, after.run.id), tool=tool.name, version=version, simulated=before.run.simulated, rows=rows,
        definitions={one.value: (OURS[one], tool.definitions[one]) for one in PeerMetric if one in shown},
        failures=failures,
    )  # fmt: skip


def _is_assumed(results: Results, key: CellKey) -> bool:
    return any(one.k1_assumed for one in results.good(results.run.baseline, key))


def _metrics(key: CellKey) -> tuple[PeerMetric, ...]:
    alone = key.concurrency == 1
    return tuple(one for one in PeerMetric if one is not PeerMetric.AGGREGATE or not alone)


def _compared(before: Results, after: Results, key: CellKey, metric: PeerMetric, theirs: Figures) -> PeerRow:
    first, second = _own_figure(before, key, metric), _own_figure(after, key, metric)
    known = [value for value in (first, second) if value is not None]
    return PeerRow(
        key=key,
        metric=metric,
        ours=fmean(known) if known else None,
        theirs=theirs.get(metric),
        drift=second / first - 1 if first and second else None,
        assumed=metric is PeerMetric.DECODE and _is_assumed(before, key),
    )


def _own_figure(results: Results, key: CellKey, metric: PeerMetric) -> float | None:
    if metric is PeerMetric.AGGREGATE:
        launches = figures_by_launch(results, results.run.baseline, key, BenchMetric.AGGREGATE)
        return _middle([value for ones in launches.values() for value in ones.values()])
    read = _OF_A_REQUEST[metric]
    return _middle([value for one in results.good(results.run.baseline, key) if (value := read(one))])


def _prompt_rate(one: RequestSample) -> float | None:
    return one.prompt_tokens / one.ttft_s if one.prompt_tokens and one.ttft_s else None


_OF_A_REQUEST: dict[PeerMetric, Callable[[RequestSample], float | None]] = {
    PeerMetric.DECODE: lambda one: one.decode_tok_s,
    PeerMetric.PROMPT: _prompt_rate,
    PeerMetric.TTFT: lambda one: one.ttft_s,
}


def _middle(values: list[float]) -> float | None:
    return median(values) if values else None


def comparison_page(found: PeerComparison) -> ReportPage:
    """Build the page: figures, definitions, the agreement of the decode rates."""
    return ReportPage(tuple(_blocks(found)))


def _blocks(found: PeerComparison) -> Iterator[Block]:
    yield Heading(1, f"sparkdash beside {found.tool} {found.version or ''}".rstrip())
    if found.simulated:
        yield TextBlock((SIMULATED,), Tone.WORSE)
    yield TextBlock(
        (
            f"The same engine: sparkdash ({found.runs[0]}), {found.tool}, sparkdash again ({found.runs[1]}).",
            "sparkdash's figure is the mean of its two; drift is what the engine itself did between them.",
        )
    )
    rows = tuple(_row(one) for one in found.rows)
    yield Grid(head=("Cell", "Figure", "Unit", "sparkdash", "Drift", found.tool, "Difference"), rows=rows, right=True)
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
    drift = DASH if one.drift is None else format_change(one.drift, 2)
    ours = f"~{values[0]}" if one.assumed else values[0]
    words = (
        cell_names.short_cell_name(one.key, {}),
        one.metric.value,
        one.metric.unit,
        ours,
        drift,
        values[1],
        difference,
    )
    return tuple(TableCell(text) for text in words)


def agreement(found: PeerComparison) -> str:
    """Say in how many cells the decode rates agree, and where they differ most."""
    rows = [one for one in found.decode if one.is_steady]
    if not rows:
        return f"No decode rate was measured by both on a steady engine: {found.tool} verifies nothing.{_aside(found)}"
    near = sum(abs(one.difference or 0.0) <= AGREES for one in rows)
    worst = max(rows, key=lambda one: abs(one.difference or 0.0))
    said = f"The decode rates agree within {AGREES:.0%} in {near} of {len(rows)} cells"
    most = f"{format_change(worst.difference or 0.0, 2)} ({cell_names.short_cell_name(worst.key, {})})"
    return f"{said}; the largest difference is {most}.{_aside(found)}"


def _aside(found: PeerComparison) -> str:
    """Count the cells that show nothing, by reason."""
    moved = sum(one.drift is not None and not one.is_steady for one in found.decode)
    single = sum(one.drift is None for one in found.decode)
    told = f" Cells whose engine moved by more than {AGREES:.0%}, which show nothing: {moved}." if moved else ""
    return told + (f" Cells that lack one of sparkdash's two measurements: {single}." if single else "")
