"""The A/B page: measured runs, and the report of the run under the cursor.

Rule: an idle box is not asked. A report is read when the cursor reaches its row, and again only while its run has
gaps, this page is visible and the daemon has news.
"""

from collections.abc import Iterable
from functools import partial
from typing import ClassVar

from textual import work
from textual.binding import Binding, BindingType
from textual.widget import Widget

from sparkdash.bench.judge.judgement import ArmFigure
from sparkdash.bench.judge.metrics import BenchMetric, main_metric
from sparkdash.bench.judge.verdict import Conclusion
from sparkdash.bench.report import blocks, formats
from sparkdash.bench.report.blocks import format_spread, format_value
from sparkdash.bench.report.page import conclusion, report_page
from sparkdash.bench.report.report import MissingCells, Report
from sparkdash.bench.run import CellKey, Run
from sparkdash.domain.event import Measuring
from sparkdash.errors import SparkdashError
from sparkdash.tui.lines.charts import meter
from sparkdash.tui.mirror import ConnectionState, View
from sparkdash.tui.screens.page import Page
from sparkdash.tui.text import (
    EDGE_ROOM,
    ELLIPSIS,
    EMPTY,
    EdgeText,
    Line,
    Style,
    align_right,
    clip,
    fitted_edge,
    frame,
    join,
    justify,
    key_hint,
    key_hints,
    length,
    pad,
    plain_text,
    shorten_apart,
    styled,
    wrap,
)
from sparkdash.tui.widgets.panel import Panel, RowMoved
from sparkdash.tui.widgets.table import Table, TableRow
from sparkdash.units import DASH, duration

METER = 30


class MeasuringPanel(Panel):
    """Two framed rows; empty while nothing is measured."""

    def draw(self, view: View, width: int, height: int) -> list[Line]:  # noqa: ARG002 - as tall as needed
        now = view.measuring
        if now is None:
            return []
        title = EdgeText(styled("measuring ", Style.PLAIN) + styled(now.run, Style.STRONG))
        return frame([clip(row, width - 4) for row in (_bar(now), _where(now, width - 4))], width, title)


def _bar(now: Measuring) -> Line:
    done, rest = meter(now.share, METER)
    left = f"   about {duration(now.left_s)} left" if now.left_s is not None else "   no estimate yet"
    bar = styled(done, Style.GOOD) + styled(rest, Style.FAINT) + styled(f" {now.share * 100:3.0f} %", Style.STRONG)
    return bar + styled(f"   {now.done} of {now.cells} cells") + styled(left, Style.DIM)


def _where(now: Measuring, width: int) -> Line:
    what = styled(f" · {now.cell or now.doing}", Style.PLAIN)
    where = styled(f"launch {now.launch} of {now.launches} · ", Style.DIM) + styled(now.arm, Style.STRONG) + what
    key = styled("is stopping", Style.WARN) if now.ends else key_hint("x", "ends it")
    return justify(where, key, width) if width else EMPTY


STYLES = {Conclusion.FASTER: Style.GOOD, Conclusion.SLOWER: Style.BAD, Conclusion.VOID: Style.WARN}
CELL, FIGURE, WIDE, MEDIAN, STEP = 19, 19, 24, 8, 8
"""Widths of the columns in cells; a narrow terminal shows the baseline without its bounds."""
LEAST_ARM = 8
"""Cells of an arm's name, below which the arms of a run are counted."""
LEAST_FRAME = 4
"""Rows of the frame with its heading and one cell."""
SIDE = 9
"""Width of a column beside the verdict, on wide terminals."""
ROOMY, BOUNDED = 120, 100
"""Terminal widths from which those columns show, and from which every figure has its bounds."""
BESIDE = (("prefill", BenchMetric.PREFILL, 0), ("ttft s", BenchMetric.TTFT, 3), ("e2e", BenchMetric.E2E, 1))


class RunTable(Table):
    """Table of every run, newest first."""

    title = "runs"

    def __init__(self) -> None:
        super().__init__()
        self.runs: tuple[Run, ...] = ()

    @property
    def chosen(self) -> Run | None:
        return next((run for run in self.runs if run.id == self.cursor), None)

    def head(self, width: int) -> Line:
        style = Style.PLAIN if self.has_focus else Style.DIM  # no frame says whether it has the keys, or the cells
        return styled(f" {'run':<{_name(width)}} {'mode':<9} {'state':<9} arms", style)

    def rows(self, view: View, width: int) -> list[TableRow]:
        return [
            TableRow(run.id, partial(_run, run, width, view.profile_names, measured=_is_measured(run, view)), run.id)
            for run in self.runs
        ]

    def _empty(self, view: View, width: int) -> list[Line]:
        return super()._empty(view, width) if self.filter else first_steps(view, width)


def first_steps(view: View, width: int) -> list[Line]:
    """Say which keys lead to a first run."""
    snapshot = view.snapshot
    sides = {"A": snapshot.toggle_a, "B": snapshot.toggle_b} if snapshot else {}
    rows = [clip(styled(f" {side} is {name}."), width) for side, name in sides.items() if name]
    blank = next((side.lower() for side, name in sides.items() if not name), "")
    mark = (f"2 {blank}", "marks the other") if rows else ("2 a b", "mark two profiles")
    plan = ("A", "plans a run that tells which of them is better; nothing starts before ⏎")
    steps = (plan,) if rows and not blank else (mark, plan)
    return rows + [row for key, what in steps for row in _step(key, what, width)]


def _step(key: str, what: str, width: int) -> list[Line]:
    first, *rest = wrap(what, width - STEP, Style.DIM)
    return [pad(styled(f" {key}", Style.STRONG), STEP) + first, *(styled(" " * STEP) + row for row in rest)]


def _is_measured(run: Run, view: View) -> bool:
    now = view.measuring
    return now is not None and now.run == run.id


def _name(width: int) -> int:
    return 34 if width >= ROOMY else 28


def _run(run: Run, width: int, known: frozenset[str], *, measured: bool) -> Line:
    state, style = ("complete", Style.PLAIN) if run.ended_at else ("has gaps", Style.WARN)
    if measured:
        state, style = "measuring", Style.GOOD
    line = styled(" ") + pad(styled(run.id, Style.STRONG), _name(width))
    line += styled(f" {run.mode.value:<9} ") + pad(styled(state, style), 10)
    line += styled("SIM ", Style.WARN) if run.simulated else EMPTY
    cells = max((width - length(line) + 2) // len(run.arms) - 2, LEAST_ARM)
    arms = ", ".join(shorten_apart(arm.name, cells, known) for arm in run.arms)
    arms = arms if len(arms) <= width - length(line) else f"{len(run.arms)} arms"
    return clip(line + styled(arms, Style.DIM), width)


KEYS = key_hints(("m", "copy"))


class CellTable(Table):
    """Table of a run's cells: the baseline's figure, an arm's, and the verdict between them."""

    def __init__(self) -> None:
        super().__init__()
        self.report: Report | None = None
        self.shown_arm: str | None = None
        self.failure_text: str | None = None
        self._known: frozenset[str] = frozenset()
        """Names that a cut one must not be taken for."""

    @property
    def framed(self) -> bool:
        return True

    @property
    def others(self) -> tuple[str, ...]:
        """Arms that can stand beside the baseline; the baseline itself when it is alone."""
        if self.report is None:
            return ()
        base = self.report.run.baseline
        return tuple(arm.name for arm in self.report.arms if arm.name != base) or (base,)

    def show_report(self, report: Report) -> None:
        self.report, self.failure_text = report, None
        if self.shown_arm not in self.others:
            self.shown_arm = self.others[0]
        self.redraw()

    def show_next_arm(self) -> None:
        if self.others:
            at = self.others.index(self.shown_arm) if self.shown_arm in self.others else -1
            self.shown_arm = self.others[(at + 1) % len(self.others)]
            self.redraw()

    def head(self, width: int) -> Line:
        if self.report is None or self.shown_arm is None:
            return EMPTY
        alone = self.shown_arm == self.report.run.baseline
        base = "tok/s" if alone else "baseline"
        if width >= BOUNDED:
            base = shorten_apart(self.report.run.baseline, _base(width), self._known)
        line = pad(styled("cell", Style.DIM), CELL) + align_right(styled(base, Style.DIM), _base(width))
        if not alone:
            arm = shorten_apart(self.shown_arm, _figures(width), self._known)
            line += styled(" ") + align_right(styled(arm, Style.DIM), _figures(width))
        return line + _sides(width, [name for name, _, _ in BESIDE]) + styled("  verdict", Style.DIM)

    def rows(self, view: View, width: int) -> list[TableRow]:
        self._known = view.profile_names
        report, arm = self.report, self.shown_arm
        if report is None or arm is None:
            return []
        keys = report.planned()
        words = blocks.length_names([key.output for key in blocks.matrix_cells(keys)], report.run.lengths)
        return [_cell(report, arm, key, blocks.short_cell_name(key, words), width) for key in keys]

    def draw(self, view: View, width: int, height: int) -> list[Line]:
        """Return the framed cells; below them a cut row in full, the overall verdict, and the gaps."""
        if self.report is None:
            style = Style.BAD if self.failure_text else Style.DIM
            told = wrap(self.failure_text or "reading the run…", width - 4, style)
            return frame(told, width, EdgeText(styled("cells")), height=height)
        rows = self.rows(view, width - 4)
        row = next((one for one in rows if one.key == self.cursor), rows[0] if rows else None)
        told = wrap(row.copy, width - 2, Style.DIM, limit=2) if row and plain_text(row.line).endswith(ELLIPSIS) else []
        foot = _foot(self.report, self.shown_arm, width, measured=_is_measured(self.report.run, view))
        if len(told) + len(foot) + LEAST_FRAME <= height:
            foot = [*(styled(" ") + line for line in told), *foot]
        else:  # what the run says comes first
            foot = foot[: max(height - LEAST_FRAME, 0) or height]
        lines = super().draw(view, width, height - len(foot))
        far = styled("SIMULATED", Style.WARN) if self.report.simulated else KEYS
        if lines:
            title = self._title(width - EDGE_ROOM - length(far))
            lines[0] = frame([], width, fitted_edge(title, far, styled(" · ", Style.DIM), width), lit=self.has_focus)[0]
        return [*lines, *foot]

    def _title(self, room: int) -> list[Line]:
        """Return what is compared in `room` cells, of each name both ends, and the figure, which gives way."""
        base = self.report.run.baseline if self.report else ""
        names = list(dict.fromkeys((self.shown_arm or base, base)))
        turn = EMPTY
        if self.shown_arm and len(self.others) > 1:
            turn = styled(f" ({self.others.index(self.shown_arm) + 1}/{len(self.others)}, [ ])", Style.DIM)
        cells = (room - length(turn) - len(" against ")) // len(names)
        return [
            styled(" against ".join(shorten_apart(name, cells, self._known) for name in names)) + turn,
            styled("decode tok/s", Style.DIM),
        ]


def _cell(report: Report, arm: str, key: CellKey, name: str, width: int) -> TableRow:
    base = report.figure(BenchMetric.DECODE, report.run.baseline, key)
    figure = report.figure(BenchMetric.DECODE, arm, key)
    line = pad(styled(name), CELL) + align_right(_figure(base, _base(width)), _base(width))
    if arm != report.run.baseline:
        line += styled(" ") + align_right(_figure(figure, _figures(width)), _figures(width))
    beside = [(report.figure(metric, arm, key), digits) for _, metric, digits in BESIDE]
    line += _sides(width, [format_value(one.median if one else None, digits) for one, digits in beside])
    told = figure.verdict if figure else None
    verdict = styled(told.text, STYLES.get(told.claim, Style.DIM)) if told else EMPTY
    parts = [format_spread(one) if one else "" for one in (base, figure)] + [told.text if told else ""]
    copy = f"{name}: {' | '.join(part or DASH for part in parts)}"
    return TableRow(key.model_dump_json(), partial(clip, line + styled("  ") + verdict, width), copy)


def _sides(width: int, texts: list[str]) -> Line:
    shown = texts if width >= ROOMY else []
    return join([align_right(styled(text or DASH, Style.DIM), SIDE) for text in shown], EMPTY)


def _base(width: int) -> int:
    return WIDE if width >= BOUNDED else MEDIAN


def _figures(width: int) -> int:
    return WIDE if width >= BOUNDED else FIGURE


def _figure(figure: ArmFigure | None, room: int) -> Line:
    """Format a figure with its bounds, or without them where they do not fit."""
    if figure is None or figure.median is None:
        return styled(DASH, Style.DIM)
    whole = format_spread(figure)
    return styled(whole if len(whole) <= room else format_value(figure.median))


def _foot(report: Report, arm: str | None, width: int, *, measured: bool) -> list[Line]:
    said = conclusion(report, main_metric(report.run.suite)) or ""
    lines = [styled(" ") + row for row in wrap(said, width - 2, Style.STRONG, limit=2) if said]
    total = next((one for one in report.overall if one.arm == arm and one.cells > 1), None)
    if total:
        style = STYLES.get(total.verdict.claim, Style.DIM)
        lines.append(styled(f" all {total.cells} cells: ", Style.DIM) + styled(total.verdict.text, style))
    lines += [styled(f" {flag.text}", Style.WARN) for flag in report.flags if flag.arm == arm]
    lines += [_gap(one, measured) for one in report.filling if one.arm in (arm, report.run.baseline)]
    return [clip(line, width) for line in lines]


def _gap(one: MissingCells, measured: bool) -> Line:
    time = "" if one.seconds is None else f", about {duration(one.seconds)}"
    what = styled(f" {one.arm} lacks {one.cells} of {one.of} cells{time}: ", Style.DIM)
    return what + styled("being measured now" if measured else f"r, or {one.command}")


AGAIN_S = 30.0


class ComparePage(Page):
    """Page with the runs above and the cells of one run below; it opens at the run that is measured."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left_square_bracket,right_square_bracket", "turn", "next arm"),
        Binding("m", "markdown", "export: copy the report as Markdown"),
        Binding("r", "resume", "resume the run under the cursor"),
    ]

    title_key = "compare"
    keys = "tab cells  [ ] arm  m copy  r resume  x end  t flip  A new run  ? help"
    AUTO_FOCUS = "RunTable"
    _read: tuple[float, object] = (0.0, None)
    """Time of the last read of a report, and the daemon's event number then."""
    _was_connected = True
    _measured_run: str | None = None

    def body(self) -> Iterable[Widget]:
        yield RunTable()
        yield MeasuringPanel()
        yield CellTable()

    def on_mount(self) -> None:
        self.set_class(True, "-no-run")

    def on_screen_resume(self) -> None:
        self._read_runs()

    def show(self, view: View) -> None:
        super().show(view)
        if not self.query(CellTable):
            return  # a paint may come before the page has its panels
        now, before = view.measuring, self._measured_run
        self._read_after_reconnect(view)
        report = self.query_one(CellTable).report
        if self.is_current and before != (running := now.run if now else None):
            self._measured_run = running  # one began or ended: the list of runs is another
            self._read_runs(begins=running is not None)
            if report is not None and report.run.id == before:
                self._ask(before)
        if report is not None and report.run.ended_at is None and self.is_current:
            self._read_again(report.run.id, view)

    def _read_again(self, run: str, view: View) -> None:
        at, seq = self._read
        if view.snapshot and view.snapshot.seq != seq and view.here - at >= AGAIN_S:
            self._ask(run)

    def _read_after_reconnect(self, view: View) -> None:
        """Read again, after the link came back, what could not be read without it."""
        connected, before = view.connection is ConnectionState.LIVE, self._was_connected
        self._was_connected = connected
        if connected and not before and self.is_current:
            self._read_runs()
            runs = self.query_one(RunTable)
            if self.query_one(CellTable).failure_text and runs.cursor:
                self._ask(runs.cursor)

    def on_row_moved(self, message: RowMoved) -> None:
        run, cells = self.query_one(RunTable).cursor, self.query_one(CellTable)
        self.set_class(run is None, "-no-run")
        if run is not None and message.key == run and (cells.report is None or cells.report.run.id != run):
            cells.report = cells.failure_text = None
            cells.redraw()
            self._ask(run)

    def action_turn(self) -> None:
        cells = self.query_one(CellTable)
        if self._report() and len(cells.others) < 2:
            self.services.say("This run has no other arm to show.")
        cells.show_next_arm()

    def end_what_is_here(self) -> None:
        self.services.orders.end_measuring()

    def action_resume(self) -> None:
        run = self.query_one(RunTable).chosen
        if run is None:
            self.services.say("No run is selected: move to one with j and k.")
        elif run.ended_at is not None:
            self.services.say(f"{run.id} is complete.")
        else:
            self.services.orders.resume_run(run.id)

    def action_markdown(self) -> None:
        if report := self._report():
            self.app.copy_to_clipboard(formats.render_markdown(report_page(report)))
            self.services.say(f"Copied {report.run.id} as Markdown.")

    def _report(self) -> Report | None:
        report = self.query_one(CellTable).report
        if report is None:
            self.services.say("No run is selected: move to one with j and k.")
        return report

    def _ask(self, run: str) -> None:
        view = self.services.view
        self._read = (view.here, view.snapshot.seq if view.snapshot else None)
        self._read_report(run)

    @work(group="runs", exclusive=True)
    async def _read_runs(self, *, begins: bool = False) -> None:
        """Read the list; the cursor goes to the run that is measured where it has none yet, or the run `begins`."""
        table = self.query_one(RunTable)
        try:
            table.runs = await self.services.daemon.runs()
        except SparkdashError as error:
            self.services.say(error.text(), bad=True)
        measuring = self.services.view.measuring
        if measuring is not None and (begins or table.cursor is None):
            table.move_to(measuring.run)
        table.redraw()

    @work(group="report", exclusive=True)
    async def _read_report(self, run: str) -> None:
        cells = self.query_one(CellTable)
        try:
            report = await self.services.daemon.report(run)
        except SparkdashError as error:
            cells.report, cells.failure_text = None, error.text()
            cells.redraw()
        else:
            if self.query_one(RunTable).cursor == run:
                cells.show_report(report)
