"""Tables of the measured runs and of the cells of one run.

Owns: their rows. Must not know: how a verdict is made; its text comes from the bench.
Rule: only claimed differences are coloured; a blank cell stays, and the frame names the command that fills it.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from sparkdash.bench.judge.judgement import ArmFigure
from sparkdash.bench.judge.metrics import BenchMetric
from sparkdash.bench.judge.verdict import Conclusion
from sparkdash.bench.report import cell_names
from sparkdash.bench.report.blocks import format_spread, format_value
from sparkdash.bench.report.report import MissingCells, Report
from sparkdash.bench.run import CellKey, Run
from sparkdash.domain.event import Measuring
from sparkdash.tui.ink import (
    ELLIPSIS,
    EMPTY,
    EdgeText,
    Ink,
    Line,
    align_right,
    clip,
    frame,
    inked,
    join,
    justify,
    length,
    pad,
    plain_text,
    wrap,
)
from sparkdash.tui.lines.charts import meter
from sparkdash.tui.mirror import View
from sparkdash.tui.name_cuts import profile_names, shorten_apart
from sparkdash.tui.widgets.panel import Panel
from sparkdash.tui.widgets.table import Table, TableRow
from sparkdash.units import DASH, duration

METER = 30


class MeasuringPanel(Panel):
    """Two framed rows; empty while nothing is measured."""

    def draw(self, view: View, width: int, height: int) -> list[Line]:  # noqa: ARG002 - as tall as needed
        """Return the framed rows."""
        now = view.measuring
        if now is None:
            return []
        title = EdgeText(inked("measuring ", Ink.PLAIN) + inked(now.run, Ink.STRONG))
        return frame([clip(row, width - 4) for row in (_bar(now), _where(now, width - 4))], width, title)


def _bar(now: Measuring) -> Line:
    done, rest = meter(now.share, METER)
    left = f"   about {duration(now.left_s)} left" if now.left_s is not None else "   no estimate yet"
    bar = inked(done, Ink.GOOD) + inked(rest, Ink.FAINT) + inked(f" {now.share * 100:3.0f} %", Ink.STRONG)
    return bar + inked(f"   {now.done} of {now.cells} cells") + inked(left, Ink.DIM)


def _where(now: Measuring, width: int) -> Line:
    what = inked(f" · {now.cell or now.doing}", Ink.PLAIN)
    where = inked(f"launch {now.launch} of {now.launches} · ", Ink.DIM) + inked(now.arm, Ink.STRONG) + what
    key = inked("is stopping", Ink.WARN) if now.ends else inked("e", Ink.STRONG) + inked(" ends it", Ink.DIM)
    return justify(where, key, width) if width else EMPTY


SEEN = "seen"
"""Key of the first row, which is no run: figures of live traffic."""
INKS = {Conclusion.FASTER: Ink.GOOD, Conclusion.SLOWER: Ink.BAD, Conclusion.VOID: Ink.WARN}
CELL, FIGURE, WIDE, MEDIAN = 19, 19, 24, 8
"""Widths of the columns in cells; a narrow terminal shows the baseline without its bounds."""
SIDE = 9
"""Width of a column beside the verdict, on wide terminals."""
ROOMY, BOUNDED = 120, 100
"""Terminal widths from which those columns show, and from which every figure has its bounds."""
BESIDE = (("prefill", BenchMetric.PREFILL, 0), ("ttft s", BenchMetric.TTFT, 3), ("e2e", BenchMetric.E2E, 1))


class RunTable(Table):
    """Table of every run, newest first, below the figures of live traffic."""

    title = "runs"

    def __init__(self, **rest: Any) -> None:
        super().__init__(**rest)
        self.runs: tuple[Run, ...] = ()

    @property
    def chosen(self) -> Run | None:
        """The run under the cursor."""
        return next((run for run in self.runs if run.id == self.cursor), None)

    def head(self, width: int) -> Line:
        """Return the column titles."""
        return inked(f" {'run':<{_name(width)}} {'mode':<9} {'state':<9} arms", Ink.DIM)

    def rows(self, view: View, width: int) -> list[TableRow]:
        """Return the row of figures of live traffic, and a row for each run."""
        snapshot = view.snapshot
        pair = [name for name in ((snapshot.toggle_a, snapshot.toggle_b) if snapshot else ()) if name]
        seen = inked(f" {'live traffic':<{_name(width)}} {DASH:<9} {DASH:<9} ")
        room = max((width - length(seen)) // 2 - 2, 1)
        known = profile_names(view)
        seen += inked(" | ".join(shorten_apart(name, room, known) for name in pair) or "A | B", Ink.DIM)
        rows = (
            TableRow(run.id, partial(_run, run, width, measured=_is_measured(run, view)), run.id) for run in self.runs
        )
        return [TableRow(SEEN, partial(clip, seen, width)), *rows]


def _is_measured(run: Run, view: View) -> bool:
    """Whether the run is being measured."""
    now = view.measuring
    return now is not None and now.run == run.id


def _name(width: int) -> int:
    return 34 if width >= ROOMY else 28


def _run(run: Run, width: int, *, measured: bool) -> Line:
    state, ink = ("complete", Ink.PLAIN) if run.ended_at else ("has gaps", Ink.WARN)
    if measured:
        state, ink = "measuring", Ink.GOOD
    arms = ", ".join(arm.name for arm in run.arms)
    line = (
        inked(" ")
        + pad(inked(run.id, Ink.STRONG), _name(width))
        + inked(f" {run.mode.value:<9} ")
        + pad(inked(state, ink), 10)
    )
    return clip(line + (inked("SIM ", Ink.WARN) if run.simulated else EMPTY) + inked(arms, Ink.DIM), width)


class CellTable(Table):
    """Table of a run's cells: the baseline's figure, an arm's, and the verdict between them."""

    def __init__(self, **rest: Any) -> None:
        super().__init__(**rest)
        self.report: Report | None = None
        self.shown_arm: str | None = None
        self.failure_text: str | None = None

    @property
    def framed(self) -> bool:
        """Always framed."""
        return True

    @property
    def others(self) -> tuple[str, ...]:
        """Arms that can stand beside the baseline; the baseline itself when it is alone."""
        if self.report is None:
            return ()
        base = self.report.run.baseline
        return tuple(arm.name for arm in self.report.arms if arm.name != base) or (base,)

    def show_report(self, report: Report) -> None:
        """Show a report; keep the arm if the report has it."""
        self.report, self.failure_text = report, None
        if self.shown_arm not in self.others:
            self.shown_arm = self.others[0]
        self.redraw()

    def show_next_arm(self) -> None:
        """Show the next arm."""
        if self.others:
            at = self.others.index(self.shown_arm) if self.shown_arm in self.others else -1
            self.shown_arm = self.others[(at + 1) % len(self.others)]
            self.redraw()

    def head(self, width: int) -> Line:
        """Return the column titles."""
        if self.report is None or self.shown_arm is None:
            return EMPTY
        alone = self.shown_arm == self.report.run.baseline
        base = self.report.run.baseline if width >= BOUNDED else "tok/s" if alone else "baseline"
        line = pad(inked("cell", Ink.DIM), CELL) + align_right(inked(base, Ink.DIM), _base(width))
        if not alone:
            line += inked(" ") + align_right(inked(self.shown_arm, Ink.DIM), _figures(width))
        return line + _sides(width, [name for name, _, _ in BESIDE]) + inked("  verdict", Ink.DIM)

    def rows(self, view: View, width: int) -> list[TableRow]:  # noqa: ARG002 - they come from the report
        """Return a row for each planned cell."""
        report, arm = self.report, self.shown_arm
        if report is None or arm is None:
            return []
        keys = report.planned()
        words = cell_names.length_names([key.output for key in cell_names.matrix_cells(keys)], report.run.lengths)
        return [_cell(report, arm, key, cell_names.short_cell_name(key, words), width) for key in keys]

    def draw(self, view: View, width: int, height: int) -> list[Line]:
        """Return the framed cells; below them a cut row in full, the overall verdict, and the gaps."""
        if self.report is None:
            told = wrap(self.failure_text or "reading the run…", width - 4, Ink.BAD if self.failure_text else Ink.DIM)
            return frame(
                [*told, *[EMPTY] * max(0, height - 2 - len(told))][: height - 2], width, EdgeText(inked("cells"))
            )
        rows = self.rows(view, width - 4)
        row = next((one for one in rows if one.key == self.cursor), rows[0] if rows else None)
        told = wrap(row.copy, width - 2, Ink.DIM, limit=2) if row and plain_text(row.line).endswith(ELLIPSIS) else []
        foot = [
            *(inked(" ") + line for line in told),
            *_foot(self.report, self.shown_arm, width, measured=_is_measured(self.report.run, view)),
        ]
        lines = super().draw(view, width, height - len(foot))
        lines[0] = frame(
            [], width, EdgeText(self._title(), inked("SIMULATED", Ink.WARN) if self.report.simulated else EMPTY)
        )[0]
        return [*lines, *foot]

    def _title(self) -> Line:
        beside = f"{self.shown_arm} against {self.report.run.baseline}" if self.report else ""
        turn = (
            inked(f" ({self.others.index(self.shown_arm) + 1}/{len(self.others)}, n)", Ink.DIM)
            if self.shown_arm and len(self.others) > 1
            else EMPTY
        )
        return (
            inked(beside if self.report and self.shown_arm != self.report.run.baseline else self.shown_arm or "")
            + turn
            + inked(" · decode tok/s", Ink.DIM)
        )


def _cell(report: Report, arm: str, key: CellKey, name: str, width: int) -> TableRow:
    base = report.figure(BenchMetric.DECODE, report.run.baseline, key)
    figure = report.figure(BenchMetric.DECODE, arm, key)
    line = pad(inked(name), CELL) + align_right(_figure(base, _base(width)), _base(width))
    if arm != report.run.baseline:
        line += inked(" ") + align_right(_figure(figure, _figures(width)), _figures(width))
    beside = [(report.figure(metric, arm, key), digits) for _, metric, digits in BESIDE]
    line += _sides(width, [format_value(one.median if one else None, digits) for one, digits in beside])
    told = figure.verdict if figure else None
    verdict = inked(told.text, INKS.get(told.claim, Ink.DIM)) if told else EMPTY
    parts = [format_spread(one) if one else "" for one in (base, figure)] + [told.text if told else ""]
    copy = f"{name}: {' | '.join(part or DASH for part in parts)}"
    return TableRow(key.model_dump_json(), partial(clip, line + inked("  ") + verdict, width), copy)


def _sides(width: int, texts: list[str]) -> Line:
    return join([align_right(inked(text or DASH, Ink.DIM), SIDE) for text in texts], EMPTY) if width >= ROOMY else EMPTY


def _base(width: int) -> int:
    return WIDE if width >= BOUNDED else MEDIAN


def _figures(width: int) -> int:
    return WIDE if width >= BOUNDED else FIGURE


def _figure(figure: ArmFigure | None, room: int) -> Line:
    """Format a figure with its bounds, or without them where they do not fit."""
    if figure is None or figure.median is None:
        return inked(DASH, Ink.DIM)
    whole = format_spread(figure)
    return inked(whole if len(whole) <= room else format_value(figure.median))


def _foot(report: Report, arm: str | None, width: int, *, measured: bool) -> list[Line]:
    """Format the overall verdict, the report's flags, and the missing cells."""
    lines: list[Line] = []
    total = next((one for one in report.overall if one.arm == arm and one.cells > 1), None)
    if total:
        ink = INKS.get(total.verdict.claim, Ink.DIM)
        lines.append(inked(f" all {total.cells} cells: ", Ink.DIM) + inked(total.verdict.text, ink))
    lines += [inked(f" {flag.text}", Ink.WARN) for flag in report.flags if flag.arm == arm]
    lines += [_gap(one, measured) for one in report.filling if one.arm in (arm, report.run.baseline)]
    return [clip(line, width) for line in lines]


def _gap(one: MissingCells, measured: bool) -> Line:
    time = "" if one.seconds is None else f", about {duration(one.seconds)}"
    what = inked(f" {one.arm} lacks {one.cells} of {one.of} cells{time}: ", Ink.DIM)
    return what + inked("being measured now" if measured else f"r, or {one.command}")
