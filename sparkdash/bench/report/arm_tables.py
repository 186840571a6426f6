"""Tables of one arm: context by length, batches, classes of text. Pure."""

from collections.abc import Iterable, Iterator, Mapping

from sparkdash.bench.judge.judgement import ArmFigure
from sparkdash.bench.judge.metrics import BenchMetric
from sparkdash.bench.judge.verdict import Conclusion
from sparkdash.bench.report import blocks
from sparkdash.bench.report.blocks import Block, Footnotes, Grid, TableCell, TextBlock, Tone
from sparkdash.bench.report.report import Report
from sparkdash.bench.results import Provenance
from sparkdash.bench.run import CellKey, Kind

HEAD_WIDTH = 7
ASSUMED_NOTE = (
    "the server does not count each chunk: the tokens of the first are estimated from its share of the text; "
    "no difference is claimed"
)


class TableSource:
    """Report combined with the local profiles: an arm's table cells, also for arms that the run lacks."""

    def __init__(
        self, report: Report, metric: BenchMetric, cannot_run: Mapping[str, str], bounds: bool = False
    ) -> None:
        self.report = report
        self.metric = metric
        self._cannot_run = cannot_run
        self._bounds = bounds
        self._names = {arm.profile: arm.name for arm in report.arms} | {arm.name: arm.name for arm in report.arms}

    def arm(self, wanted: str) -> str | None:
        """Return the run's arm of that name or profile."""
        return self._names.get(wanted)

    def impossible(self, wanted: str) -> str | None:
        found = self.report.arm(self.arm(wanted) or "")
        return found.impossible if found else self._cannot_run.get(wanted)

    def figure(self, wanted: str, key: CellKey, metric: BenchMetric | None = None) -> ArmFigure | None:
        """Return the arm's figure; None when the run has no such arm or cell."""
        name = self.arm(wanted)
        return self.report.figure(metric or self.metric, name, key) if name else None

    def cell(self, wanted: str, key: CellKey, notes: Footnotes, metric: BenchMetric | None = None) -> TableCell:
        """Return a figure; a dash with its reason where none can exist; a blank where it is still to be measured."""
        if reason := self.impossible(wanted):
            return TableCell(blocks.DASH + notes.mark(f"cannot run: {reason}"), Tone.DIM)
        found = self.figure(wanted, key, metric)
        if found is None:
            return TableCell("")
        if found.median is None:
            if found.verdict.reason is None:
                return TableCell("")
            void = found.verdict.claim is Conclusion.VOID
            return TableCell(blocks.DASH + notes.mark(found.verdict.text), Tone.WORSE if void else Tone.DIM)
        places = blocks.decimals(metric or self.metric)
        text = blocks.format_spread(found, places) if self._bounds else blocks.format_value(found.median, places)
        return self._marked(text, found.arm, key, notes, metric or self.metric)

    def _marked(self, text: str, arm: str, key: CellKey, notes: Footnotes, metric: BenchMetric) -> TableCell:
        if (source := self.report.source(arm, key)) is not None:
            text += notes.mark(f"{source.at:%Y-%m-%d}, run {source.run}")
        if self.report.is_assumed(metric, arm, key):
            return TableCell(f"~{text}" + notes.mark(ASSUMED_NOTE), Tone.DIM)
        return TableCell(text)

    @property
    def grid_keys(self) -> tuple[CellKey, ...]:
        """Cells of the matrix: one request at a time, cold, all classes of text. Batches have their own table."""
        return blocks.matrix_cells(self.report.planned())

    @property
    def suite(self) -> str:
        """Argument of `--suite` that finds the suite again."""
        return self.report.run.suite_options

    @property
    def words(self) -> dict[int, str]:
        """Names of the matrix's output lengths, by tokens."""
        return blocks.length_names([one.output for one in self.grid_keys], self.report.run.lengths)

    @property
    def asks_math(self) -> bool:
        return bool(self.report.planned(Kind.MATH))

    @property
    def compared(self) -> CellKey | None:
        """Cell in which builds are compared: the smallest context and the longest output."""
        return min(self.grid_keys, key=lambda one: (one.context, -one.output), default=None)


def context_matrix(source: TableSource, arm: str) -> Grid:
    """Table of context by length for one arm, with the columns measured on a warm prefix cache behind."""
    notes = Footnotes()
    columns = _columns(source)
    return Grid(
        head=("Context", *(word for word, _ in columns)),
        rows=tuple(_row(source, arm, context, columns, notes) for context in _contexts(source)),
        widths=(HEAD_WIDTH, *(len(word) for word, _ in columns)),
        notes=tuple(notes.texts),
        right=True,
    )


def math_share(source: TableSource, arm: str) -> str:
    """Return the share of right answers: 74%, nothing before any were asked, a dash for an impossible arm."""
    if source.impossible(arm):
        return blocks.DASH
    found = source.report.score(source.arm(arm) or "")
    return blocks.format_percent(found.share) if found else ""


def batch_table(source: TableSource, arm: str) -> Iterator[Block]:
    """Table of concurrent requests: the rate of each, and of all together."""
    keys = [one for one in source.report.planned() if not one.warm and not one.text]
    crowds = {(one.context, one.output) for one in keys if one.concurrency > 1}
    apart = len({context for context, _ in crowds}) > 1
    notes = Footnotes()
    rows = []
    for key in sorted(keys, key=lambda one: (one.context, one.output, one.concurrency)):
        if (key.context, key.output) in crowds:
            where = (TableCell(f"ctx={blocks.context_name(key.context)}"),) * apart
            rows.append((*where, *_batch_cells(source, arm, key, notes)))
    if rows:
        head = ("Context",) * apart + ("Batch", "Avg completion tokens", _figure_head(source.metric), "Aggregate tok/s")
        yield Grid(head=head, rows=tuple(rows), widths=(0,) * len(head), notes=tuple(notes.texts), right=True)


def _figure_head(metric: BenchMetric) -> str:
    if metric is BenchMetric.DECODE:
        return "tok/s per request"
    return "tok/s together" if metric is BenchMetric.AGGREGATE else f"{metric.value} per request ({metric.unit})"


def _batch_cells(source: TableSource, arm: str, key: CellKey, notes: Footnotes) -> tuple[TableCell, ...]:
    # of one request at a time, tokens over the time from its start to its end are its end-to-end rate
    way, together = ("serial", BenchMetric.E2E) if key.concurrency == 1 else ("concurrent", BenchMetric.AGGREGATE)
    return (
        TableCell(f"{key.concurrency} ({way})"),
        TableCell(str(key.output)),
        source.cell(arm, key, notes),
        source.cell(arm, key, notes, together),
    )


def text_class_table(source: TableSource, arm: str) -> Iterator[Block]:
    """Table by class of text, which the matrix lacks; the gain of speculation depends on the class."""
    keys = [one for one in source.report.planned() if one.text]
    notes = Footnotes()
    rows = []
    for key in keys:
        figures = (source.cell(arm, key, notes), source.cell(arm, key, notes, BenchMetric.TTFT))
        at_once = f" x{key.concurrency}" if key.concurrency > 1 else ""
        where = (key.text + at_once, f"ctx={blocks.context_name(key.context)}", str(key.output))
        rows.append((*map(TableCell, where), *figures))
    if rows:
        head = ("Text", "Context", "Tokens", f"{source.metric.unit} ({source.metric.value})", "TTFT s")
        yield Grid(head=head, rows=tuple(rows), widths=(0,) * len(head), notes=tuple(notes.texts), right=True)


def prefix_cache_line(source: TableSource, arm: str) -> Iterator[Block]:
    """Line per prefix cell with the share of the repeated prompt that came from the cache, or the lack of one."""
    keys = source.report.planned(Kind.PREFIX)
    rates = {one.key: one.rate for one in source.report.hits if one.arm == source.arm(arm)}
    for key in keys:
        place = f" (ctx={blocks.context_name(key.context)})" if len(keys) > 1 else ""
        if key in rates:
            share = f"{blocks.format_percent(rates[key])} delta hit rate on repeated system prompt"
            yield TextBlock((f"Prefix cache: {share}{place}.",))
        else:
            yield TextBlock((f"Prefix cache: {blocks.DASH}{place}. No finished cell has counts of hits.",), Tone.DIM)


Column = tuple[str, dict[int, CellKey]]
"""Title of a column, and its cells by context."""


def _columns(source: TableSource) -> list[Column]:
    cold = [(word, _by_context(source.grid_keys, output)) for output, word in source.words.items()]
    keys = [one for one in source.report.planned() if one.warm and one.concurrency == 1 and not one.text]
    warmed = [(f"{word}, warm", _by_context(keys, output)) for output, word in source.words.items()]
    return [*cold, *(column for column in warmed if column[1])]


def _by_context(keys: Iterable[CellKey], output: int) -> dict[int, CellKey]:
    return {one.context: one for one in keys if one.output == output}


def _contexts(source: TableSource) -> list[int]:
    return sorted({one.context for one in source.grid_keys})


def _row(source: TableSource, arm: str, context: int, columns: list[Column], notes: Footnotes) -> tuple[TableCell, ...]:
    """Build a row. Lengths that were not planned at this context have a dash."""
    cells = (
        source.cell(arm, keys[context], notes) if context in keys else TableCell(blocks.DASH, Tone.DIM)
        for _, keys in columns
    )
    return (TableCell(f"ctx={blocks.context_name(context)}"), *cells)


LONG = 262_144


def kv_cells(told: Provenance, notes: Footnotes) -> tuple[TableCell, TableCell]:
    tokens, limit = told.kv_tokens or 0, told.context_limit
    if limit is not None and limit < LONG:
        users = TableCell(blocks.DASH + notes.mark(f"the engine serves requests of up to {limit:,} tokens"), Tone.DIM)
    else:
        users = TableCell(str(tokens // LONG))
    return TableCell(f"{blocks.tokens_text(tokens)} tokens"), users
