"""The tables of one arm: context by length, batches, what reasoning hides. Pure.

Owns: the published tables' rows and columns. Must not know: Markdown.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping

from sparkdash.bench.judge.judgement import Figure
from sparkdash.bench.judge.metrics import Metric
from sparkdash.bench.judge.verdict import Claim
from sparkdash.bench.report import cell_names
from sparkdash.bench.report.blocks import DASH, Block, Cell, Grid, Notes, Text, Tone, digits, percent, spread, value
from sparkdash.bench.report.layout import Build, Mode
from sparkdash.bench.report.report import Filling, Report
from sparkdash.bench.run import CellKey, Kind
from sparkdash.units import duration

HEAD_WIDTH = 7
"""Of the context column: `ctx=16K`."""
FIRST = ((Metric.TTFT, "token (ttft)"), (Metric.TTFV, "visible token (ttfv)"))
"""What a reader waits for, where the stream begins with reasoning."""
HIDDEN = 0.98
"""Below this share of visible tokens a stream counts as one with reasoning in it."""


class Source:
    """A report with what the profiles say: an arm's cells, also of arms that the run does not have."""

    def __init__(self, report: Report, metric: Metric, cannot_run: Mapping[str, str], bounds: bool = False) -> None:
        self.report = report
        self.metric = metric
        self._cannot_run = cannot_run
        self._bounds = bounds
        self._names = {arm.profile: arm.name for arm in report.arms} | {arm.name: arm.name for arm in report.arms}

    def arm(self, wanted: str) -> str | None:
        """The run's arm of that name or profile."""
        return self._names.get(wanted)

    def impossible(self, wanted: str) -> str | None:
        """Why it cannot be run, by the run or by its profile."""
        found = self.report.arm(self.arm(wanted) or "")
        return found.impossible if found else self._cannot_run.get(wanted)

    def figure(self, wanted: str, key: CellKey, metric: Metric | None = None) -> Figure | None:
        """That arm's figure; None when the run has no such arm or cell."""
        name = self.arm(wanted)
        return self.report.figure(metric or self.metric, name, key) if name else None

    def cell(self, wanted: str, key: CellKey, notes: Notes, metric: Metric | None = None) -> Cell:
        """A figure; a dash with its reason where there can be none; blank where one is still to be measured."""
        if reason := self.impossible(wanted):
            return Cell(DASH + notes.mark(f"cannot run: {reason}"), Tone.DIM)
        found = self.figure(wanted, key, metric)
        if found is None:
            return Cell("")
        if found.median is None:
            if found.verdict.reason is None:
                return Cell("")
            void = found.verdict.claim is Claim.VOID
            return Cell(DASH + notes.mark(found.verdict.text), Tone.WORSE if void else Tone.DIM)
        places = digits(metric or self.metric)
        return Cell(spread(found, places) if self._bounds else value(found.median, places))

    @property
    def grid_keys(self) -> tuple[CellKey, ...]:
        """The cells of the matrix: one request at a time, cold, the whole panel; batches have a table of their own."""
        return cell_names.alone(self.report.planned())

    @property
    def suite(self) -> str:
        """What `--suite` takes to find it again: its name, or its file as a shell reads it."""
        run = self.report.run
        if run.suite_file is None:
            return run.suite
        home = "~/" * run.suite_file.startswith("~/")
        return home + shlex.quote(run.suite_file.removeprefix(home))

    @property
    def words(self) -> dict[int, str]:
        """What the lengths of those cells' answers are called, by their tokens."""
        return cell_names.lengths([one.output for one in self.grid_keys], self.report.run.lengths)

    @property
    def asks_math(self) -> bool:
        """Does the suite have questions whose answers are right or wrong?"""
        return bool(self.report.planned(Kind.MATH))

    @property
    def compared(self) -> CellKey | None:
        """The cell that builds are compared in: the smallest context and the longest output."""
        return min(self.grid_keys, key=lambda one: (one.context, -one.output), default=None)


def matrix(source: Source, arm: str, *, warm: bool = False) -> Grid:
    """Context by length, one arm; with `warm` the columns that were measured on a warm prefix cache as well."""
    notes = Notes()
    columns = _columns(source, warm)
    return Grid(
        head=("Context", *(word for word, _ in columns)),
        rows=tuple(_row(source, arm, context, columns, notes) for context in _contexts(source)),
        widths=(HEAD_WIDTH, *(len(word) for word, _ in columns)),
        notes=tuple(notes.texts),
        right=True,
    )


def combined(source: Source, build: Build, modes: tuple[Mode, ...]) -> Grid:
    """The same of several modes in one table, with the share of right answers as a column."""
    notes = Notes()
    columns = _columns(source, warm=False)
    rows: list[tuple[Cell, ...]] = []
    for mode, arm in build.shown(modes):
        rows.append((Cell(mode.title, Tone.HEAD), *(Cell("", Tone.HEAD) for _ in range(len(columns) + 1))))
        for number, context in enumerate(_contexts(source)):
            score = Cell(math(source, arm) if number == 0 else "")
            rows.append((*_row(source, arm, context, columns, notes), score))
    return Grid(
        head=("Context", *(word for word, _ in columns), "Math"),
        rows=tuple(rows),
        widths=(HEAD_WIDTH, *(len(word) for word, _ in columns), 4),
        notes=tuple(notes.texts),
        right=True,
    )


def math(source: Source, arm: str, unknown: str = "?%") -> str:
    """74%, ?% while nobody asked, a dash where there is nobody to ask."""
    if source.impossible(arm):
        return DASH
    found = source.report.score(source.arm(arm) or "")
    return percent(found.share) if found else unknown


def wanting(source: Source, arm: str) -> Text | None:
    """What would fill the arm's blank cells, and how long it would take."""
    if source.impossible(arm):
        return None
    name = source.arm(arm)
    if name is None:
        cells = len(source.report.run.cells)
        return _missing(
            Filling(arm=arm, cells=cells, of=cells, command=f"sparkdash bench {arm} --suite {source.suite}")
        )
    found = next((one for one in source.report.filling if one.arm == name), None)
    return _missing(found) if found else None


def _missing(one: Filling) -> Text:
    time = "time not known yet" if one.seconds is None else f"about {duration(one.seconds)}"
    over = f" over {one.launches} launches" if one.launches > 1 else ""
    return Text((f"Missing {one.cells} of {one.of} cells{over}, {time}: `{one.command}`",), Tone.DIM)


def batches(source: Source, arm: str) -> Iterator[Block]:
    """Requests at once: what each gets, and all together."""
    keys = [one for one in source.report.planned() if not one.warm and not one.text]
    crowds = {(one.context, one.output) for one in keys if one.concurrency > 1}
    apart = len({context for context, _ in crowds}) > 1
    notes = Notes()
    rows = []
    for key in sorted(keys, key=lambda one: (one.context, one.output, one.concurrency)):
        if (key.context, key.output) in crowds:
            together = Metric.AGGREGATE if key.concurrency > 1 else source.metric
            cells = (source.cell(arm, key, notes), source.cell(arm, key, notes, together))
            way = "serial" if key.concurrency == 1 else "concurrent"
            where = (Cell(f"ctx={cell_names.context(key.context)}"),) * apart
            rows.append((*where, Cell(f"{key.concurrency} ({way})"), Cell(str(key.output)), *cells))
    if rows:
        head = ("Context",) * apart + ("Batch", "Avg completion tokens", "tok/s per request", "Aggregate tok/s")
        yield Grid(head=head, rows=tuple(rows), widths=(0,) * len(head), notes=tuple(notes.texts), right=True)


def texts(source: Source, arm: str) -> Iterator[Block]:
    """Classes of text apart, which the matrix does not have: what speculation gains depends on them."""
    keys = [one for one in source.report.planned() if one.text]
    notes = Notes()
    rows = []
    for key in keys:
        figures = (source.cell(arm, key, notes), source.cell(arm, key, notes, Metric.TTFT))
        at_once = f" x{key.concurrency}" if key.concurrency > 1 else ""
        where = (key.text + at_once, f"ctx={cell_names.context(key.context)}", str(key.output))
        rows.append((*map(Cell, where), *figures))
    if rows:
        head = ("Text", "Context", "Tokens", f"{source.metric.unit} ({source.metric.value})", "TTFT s")
        yield Grid(head=head, rows=tuple(rows), widths=(0,) * len(head), notes=tuple(notes.texts), right=True)


def reasoning(source: Source, arm: str) -> Iterator[Block]:
    """Where part of the stream is reasoning: the same stream by visible and by all tokens, two figures of one speed."""
    key = source.compared
    if key is None:
        return
    seen, pure = (source.figure(arm, key, metric) for metric in (Metric.VISIBLE, Metric.DECODE))
    whole = source.figure(arm, key, Metric.E2E)
    if not seen or not seen.median or not whole or not whole.median or seen.median > HIDDEN * whole.median:
        return
    rows = [
        (Cell("Generation throughput (with reasoning overhead)"), Cell(f"{value(seen.median)} tok/s")),
        (Cell("Pure decode (no reasoning)"), Cell(f"{value(pure.median if pure else None) or DASH} tok/s")),
        *(_first(source, arm, key, metric, what) for metric, what in FIRST),
    ]
    hit = next((one for one in source.report.hits if one.arm == source.arm(arm)), None)
    if hit:
        rows.append((Cell("Prefix cache hit rate"), Cell(percent(hit.rate))))
    yield Grid(head=("Metric", "Value"), rows=tuple(rows), widths=(0, 0))


def _first(source: Source, arm: str, key: CellKey, metric: Metric, what: str) -> tuple[Cell, Cell]:
    found = source.figure(arm, key, metric)
    return Cell(f"Time to the first {what}"), Cell(
        f"{value(found.median if found else None, digits(metric)) or DASH} s"
    )


def prefix(source: Source, arm: str) -> Iterator[Block]:
    """What of a repeated prompt came from the cache."""
    for one in source.report.hits:
        if one.arm == source.arm(arm) and one.key.kind is Kind.PREFIX:
            yield Text((f"Prefix cache: {percent(one.rate)} delta hit rate on repeated system prompt.",))


Column = tuple[str, dict[int, CellKey]]
"""Its title, and its cells by context."""


def _columns(source: Source, warm: bool) -> list[Column]:
    words = source.words
    cold = [
        (word, {one.context: one for one in source.grid_keys if one.output == output}) for output, word in words.items()
    ]
    warmed = [one for one in source.report.planned() if one.warm and one.concurrency == 1 and not one.text]
    beside = [
        (f"{word}, warm", {one.context: one for one in warmed if one.output == output})
        for output, word in words.items()
    ]
    return [*cold, *(column for column in beside if column[1])] if warm else cold


def _contexts(source: Source) -> list[int]:
    return sorted({one.context for one in source.grid_keys})


def _row(source: Source, arm: str, context: int, columns: list[Column], notes: Notes) -> tuple[Cell, ...]:
    """A length that was not planned at this context has a dash."""
    cells = (source.cell(arm, keys[context], notes) if context in keys else Cell(DASH, Tone.DIM) for _, keys in columns)
    return (Cell(f"ctx={cell_names.context(context)}"), *cells)
