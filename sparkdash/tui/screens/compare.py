"""The A/B page: figures of the marked profiles, measured runs, and the report of the run under the cursor.

Rule: an idle box is not asked. A report is read when the cursor reaches its row, and again only while its run has
gaps, this page is visible and the daemon has news.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

from textual import work
from textual.binding import Binding, BindingType
from textual.widget import Widget

from sparkdash.bench.report.formats import html, markdown
from sparkdash.bench.report.page import report_charts, report_page
from sparkdash.bench.report.report import Report
from sparkdash.errors import SparkdashError
from sparkdash.tui.mirror import LinkState, View
from sparkdash.tui.screens.page import Page
from sparkdash.tui.widgets.compare import ComparePanel
from sparkdash.tui.widgets.panel import RowMoved
from sparkdash.tui.widgets.runs import SEEN, CellTable, MeasuringPanel, RunTable

AGAIN_S = 30.0


class ComparePage(Page):
    """Page with the runs above and the cells of one run below."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n", "turn", "next arm", show=False),
        Binding("m", "markdown", "copy as Markdown", show=False),
        Binding("h", "html", "write the HTML page", show=False),
        Binding("e", "app.order('end_measuring')", "end the measurement", show=False),
        Binding("r", "resume", "go on with the run", show=False),
    ]

    title_key = "compare"
    keys = "tab cells  n arm  m copy  h html  r resume  e end  t flip  ? help"
    AUTO_FOCUS = "RunTable"
    _read: tuple[float, object] = (0.0, None)
    """Time of the last read of a report, and the daemon's event number then."""
    _was_linked = True
    _measured_run: str | None = None

    def body(self) -> Iterable[Widget]:
        yield RunTable()
        yield MeasuringPanel()
        yield ComparePanel(below_runs=True)
        yield CellTable()

    def on_mount(self) -> None:
        self.query_one(CellTable).display = False

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
            self._read_runs()
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
        linked, before = view.link is LinkState.LIVE, self._was_linked
        self._was_linked = linked
        if linked and not before and self.is_current:
            self._read_runs()
            runs = self.query_one(RunTable)
            if self.query_one(CellTable).failure_text and runs.cursor and runs.cursor != SEEN:
                self._ask(runs.cursor)

    def on_row_moved(self, message: RowMoved) -> None:
        runs = self.query_one(RunTable)
        cells = self.query_one(CellTable)
        run = None if runs.cursor == SEEN else runs.cursor
        self.query_one(ComparePanel).display = run is None
        cells.display = run is not None
        if run is not None and message.key == run and (cells.report is None or cells.report.run.id != run):
            cells.report = cells.failure_text = None
            cells.redraw()
            self._ask(run)

    def action_turn(self) -> None:
        cells = self.query_one(CellTable)
        if self._report() and len(cells.others) < 2:
            self.services.say("This run has no other arm to show.")
        cells.show_next_arm()

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
            self.app.copy_to_clipboard(markdown.render_markdown(report_page(report)))
            self.services.say(f"Copied {report.run.id} as Markdown.")

    def action_html(self) -> None:
        if report := self._report():
            self._write_html(report)

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
    async def _read_runs(self) -> None:
        table = self.query_one(RunTable)
        try:
            table.runs = await self.services.link.runs()
        except SparkdashError as error:
            self.services.say(error.text(), bad=True)
        table.redraw()

    @work(group="report", exclusive=True)
    async def _read_report(self, run: str) -> None:
        cells = self.query_one(CellTable)
        try:
            report = await self.services.link.report(run)
        except SparkdashError as error:
            cells.report, cells.failure_text = None, error.text()
            cells.redraw()
        else:
            if self.query_one(RunTable).cursor == run:
                cells.show_report(report)

    @work(group="html", exclusive=True)
    async def _write_html(self, report: Report) -> None:
        place = Path.cwd() / f"{report.run.id}.html"
        try:
            text = await asyncio.to_thread(lambda: html.render_html(report_page(report), report_charts(report)))
            await asyncio.to_thread(place.write_text, text, encoding="utf-8")
        except SparkdashError as error:
            self.services.say(error.text(), bad=True)
        except OSError as error:
            self.services.say(f"The page cannot be written: {error.strerror} ({place.parent}).", bad=True)
        else:
            self.services.say(f"Wrote {place}.")
