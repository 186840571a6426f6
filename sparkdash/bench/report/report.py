"""The values of a report: what every form of it is drawn from, and what --json and /api give out. Pure.

Owns: their shape. Must not know: where they come from, how they are drawn.
Rates in tokens per second, times in seconds, shares 0..1; None was not measured.
"""

from __future__ import annotations

from sparkdash.bench.judge.judgement import ArmFigure, CellRow, Decomposition, Overall
from sparkdash.bench.judge.metrics import BenchMetric
from sparkdash.bench.judge.quality import AnswerQuality, OutputEquality
from sparkdash.bench.records import Provenance
from sparkdash.bench.run import CellKey, Kind, Run
from sparkdash.domain.base import Frozen

FORMAT = 1
"""Of the JSON form; raised when a reader of the older one would misread it."""


class Speculation(Frozen):
    """What an arm's speculation did in a cell, by the engine's counters."""

    arm: str
    key: CellKey
    acceptance_length: float
    """Mean tokens per verify step."""
    accepted_at: tuple[float, ...] = ()
    """Share of verify steps whose draft token at each position was accepted, first to last."""


class PrefixHits(Frozen):
    """Share of prompt tokens that came from the prefix cache, over a cell."""

    arm: str
    key: CellKey
    rate: float


class MissingCells(Frozen):
    """What would fill the blank cells of an arm."""

    arm: str
    cells: int
    """That lack at least one repetition, counted in each launch."""
    of: int
    launches: int = 1
    """Of the arm, as planned."""
    seconds: float | None = None
    """By this run's own pace; None while nothing like it was measured."""
    command: str


class ArmReport(Frozen):
    """What really ran under an arm's name, from its last launch."""

    name: str
    profile: str
    impossible: str | None = None
    launches: int = 0
    provenance: Provenance | None = None


class ComparisonFlag(Frozen):
    """What a reader must know before comparing."""

    refuses: bool
    """The two are not comparable: no difference between them is shown."""
    arm: str
    text: str


class Advice(Frozen):
    """Which value of a swept parameter to take for one cell, and so for its class of text."""

    key: CellKey
    arm: str
    """The fastest of those that are shown to be faster than the baseline; the baseline where none is."""
    figure: ArmFigure
    """Its decode rate, with the verdict against the baseline."""
    acceptance_length: float | None = None
    runner_up: ArmFigure | None = None
    """The next fastest, whatever can be claimed of it."""


class MetricTable(Frozen):
    """One metric in every cell of every arm."""

    metric: BenchMetric
    rows: tuple[CellRow, ...]


class Report(Frozen):
    """A run, told."""

    format: int = FORMAT
    run: Run
    simulated: bool
    """At least one engine was a simulated one; every form says so."""
    arms: tuple[ArmReport, ...]
    tables: tuple[MetricTable, ...]
    overall: tuple[Overall, ...] = ()
    """Of decode, over all cells."""
    decompositions: tuple[Decomposition, ...] = ()
    speculation: tuple[Speculation, ...] = ()
    hits: tuple[PrefixHits, ...] = ()
    scores: tuple[AnswerQuality, ...] = ()
    """Of the arms that were asked arithmetic."""
    advice: tuple[Advice, ...] = ()
    """Of a sweep, one for each cell that has figures."""
    equalities: tuple[OutputEquality, ...] = ()
    """Of greedy outputs with the baseline's."""
    filling: tuple[MissingCells, ...] = ()
    """One for each arm that lacks something."""
    flags: tuple[ComparisonFlag, ...] = ()
    late_p99_ms: float | None = None
    """The client's own cost, in the worst of the cells that count: 99 % of what came was read within so long of its arrival."""

    def figure(self, metric: BenchMetric, arm: str, key: CellKey) -> ArmFigure | None:
        """One figure with its verdict; None when that was never planned."""
        rows = next((table.rows for table in self.tables if table.metric is metric), ())
        row = next((row for row in rows if row.key == key), None)
        return next((one for one in row.figures if one.arm == arm), None) if row else None

    def planned(self, kind: Kind = Kind.SPEED) -> tuple[CellKey, ...]:
        """The planned cells of that kind, in the run's order."""
        return tuple(one.key for one in self.run.cells if one.key.kind is kind)

    def arm(self, name: str) -> ArmReport | None:
        """That arm; None when the run has none of that name."""
        return next((one for one in self.arms if one.name == name), None)

    def score(self, arm: str) -> AnswerQuality | None:
        """The arm's right answers; None when it was not asked."""
        return next((one for one in self.scores if one.arm == arm), None)
