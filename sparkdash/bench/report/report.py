"""Values of a report: the source of every format, of --json and of /api.

Rates in tokens per second, times in seconds, shares 0..1; None was not measured. Pure.
"""

from datetime import datetime

from sparkdash.bench.judge.accuracy import AnswerQuality
from sparkdash.bench.judge.judgement import ArmFigure, CellRow, Decomposition, Overall
from sparkdash.bench.judge.metrics import BenchMetric
from sparkdash.bench.results import Provenance
from sparkdash.bench.run import CellKey, Kind, Run
from sparkdash.domain.base import Frozen

FORMAT = 1
"""Version of the JSON form. Raised when a reader of the older one would misread it."""


class Speculation(Frozen):
    """Effect of an arm's speculation in a cell, by the engine's counters."""

    arm: str
    key: CellKey
    acceptance_length: float
    """Mean tokens per verify step."""
    accepted_at: tuple[float, ...] = ()
    """Share of verify steps whose draft token at each position was accepted, first to last."""


class PrefixHits(Frozen):
    """Share of prompt tokens from the prefix cache in a cell."""

    arm: str
    key: CellKey
    rate: float


class MissingCells(Frozen):
    """Blank cells of an arm, and the command that fills them."""

    arm: str
    cells: int
    """Cells that lack at least one repetition, counted in each launch."""
    of: int
    launches: int = 1
    seconds: float | None = None
    """Estimate by this run's own pace; None while nothing comparable was measured."""
    command: str
    """Empty where nothing fills them any more."""


class ArmReport(Frozen):
    """Facts about an arm, from its last launch."""

    name: str
    profile: str
    impossible: str | None = None
    launches: int = 0
    provenance: Provenance | None = None


class ComparisonFlag(Frozen):
    """Warning about a comparison, or its refusal."""

    refuses: bool
    """The two are not comparable: no difference is shown."""
    arm: str
    text: str


class AssumedCell(Frozen):
    """Cell whose decode rate hangs on an estimate of the first chunk's tokens."""

    arm: str
    key: CellKey


class VoidCount(Frozen):
    """Samples of an arm that do not count, for one reason."""

    arm: str
    reason: str
    """Reason of the first; others differ in their figures alone."""
    samples: int


class CellSource(Frozen):
    """Run that fills a cell of merged runs."""

    arm: str
    key: CellKey
    run: str
    at: datetime


class Advice(Frozen):
    """Recommended value of a swept parameter for one cell, and so for its class of text."""

    key: CellKey
    arm: str
    """Fastest arm that is shown to be faster than the baseline; the baseline if there is none."""
    figure: ArmFigure
    """Decode rate with the verdict against the baseline."""
    acceptance_length: float | None = None
    runner_up: ArmFigure | None = None
    """Next fastest arm, whether or not a difference can be claimed."""


class MetricTable(Frozen):
    """Table of one metric: every cell of every arm."""

    metric: BenchMetric
    rows: tuple[CellRow, ...]
    overall: tuple[Overall, ...] = ()


class Report(Frozen):
    """Complete report of a run."""

    format: int = FORMAT
    run: Run
    simulated: bool
    """True with at least one simulated engine; every format says so."""
    arms: tuple[ArmReport, ...]
    tables: tuple[MetricTable, ...]
    overall: tuple[Overall, ...] = ()
    decompositions: tuple[Decomposition, ...] = ()
    speculation: tuple[Speculation, ...] = ()
    hits: tuple[PrefixHits, ...] = ()
    scores: tuple[AnswerQuality, ...] = ()
    advice: tuple[Advice, ...] = ()
    filling: tuple[MissingCells, ...] = ()
    flags: tuple[ComparisonFlag, ...] = ()
    voids: tuple[VoidCount, ...] = ()
    damaged: int = 0
    """Unreadable lines of the records; what they held is missing."""
    assumed: tuple[AssumedCell, ...] = ()
    """Cells whose decode rates are marked, and compared with none."""
    sources: tuple[CellSource, ...] = ()
    """Run of each filled cell, where the report merges runs; empty: one run."""
    late_p99_ms: float | None = None
    """Client overhead in the worst valid cell: 99 % of the bytes were read within this time of their arrival."""

    def figure(self, metric: BenchMetric, arm: str, key: CellKey) -> ArmFigure | None:
        """Return a figure with its verdict; None when it was never planned."""
        rows = next((table.rows for table in self.tables if table.metric is metric), ())
        row = next((row for row in rows if row.key == key), None)
        return next((one for one in row.figures if one.arm == arm), None) if row else None

    def is_assumed(self, metric: BenchMetric, arm: str, key: CellKey) -> bool:
        """Whether this figure hangs on an estimate of the first chunk's tokens."""
        return metric is BenchMetric.DECODE and any((one.arm, one.key) == (arm, key) for one in self.assumed)

    def source(self, arm: str, key: CellKey) -> CellSource | None:
        """Return the run that fills a cell of merged runs."""
        return next((one for one in self.sources if (one.arm, one.key) == (arm, key)), None)

    def planned(self, kind: Kind = Kind.SPEED) -> tuple[CellKey, ...]:
        return tuple(one.key for one in self.run.cells if one.key.kind is kind)

    def arm(self, name: str) -> ArmReport | None:
        return next((one for one in self.arms if one.name == name), None)

    def score(self, arm: str) -> AnswerQuality | None:
        return next((one for one in self.scores if one.arm == arm), None)
