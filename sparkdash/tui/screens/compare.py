"""The A/B page: the runs, how far the one is that is measured, and what the one under the cursor says; first of all what
was seen in passing.

Owns: when runs and reports are asked for. Must not know: how they are drawn or measured.
Rule: an idle box is not asked: a report is read when its row is reached, and again only while its run has gaps, this
page is seen and the daemon has news.
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
from sparkdash.bench.report.page import drawn, page
from sparkdash.bench.report.report import Report
from sparkdash.errors import SparkdashError
from sparkdash.tui.messages import RowMoved
from sparkdash.tui.mirror import LinkState, View
from sparkdash.tui.screens.page import Page
from sparkdash.tui.widgets.compare import ComparePanel
from sparkdash.tui.widgets.measuring import MeasuringPanel
from sparkdash.tui.widgets.runs import SEEN, CellTable, RunTable

AGAIN_S = 30.0
"""Between two looks at a run that is being measured."""


class ComparePage(Page):
    """Runs above, cells below."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n", "turn", "next arm", show=False),
        Binding("m", "markdown", "copy as Markdown", show=False),
        Binding("h", "html", "write the HTML page", show=False),
        Binding("e", "app.end_measuring", "end the measurement", show=False),
        Binding("r", "resume", "go on with the run", show=False),
    ]

    title_key = "compare"
    keys = "tab cells  n arm  m copy  h html  r go on  e end  t flip  ? help"
    AUTO_FOCUS = "RunTable"
    _read: tuple[float, object] = (0.0, None)
    """When a report was asked for, and the daemon's number then."""
    _linked = True
    """Was there a daemon that could be asked?"""
    _measured: str | None = None
    """The run that is measured, as far as the list of runs knows."""

    def body(self) -> Iterable[Widget]:
        """See Page."""
        yield RunTable()
        yield MeasuringPanel()
        yield ComparePanel(below_runs=True)
        yield CellTable()

    def on_mount(self) -> None:
        """Begin with what was seen in passing."""
        self.query_one(CellTable).display = False

    def on_screen_resume(self) -> None:
        """See Page; the runs are asked for when the page is opened."""
        super().on_screen_resume()
        self._runs()

    def show(self, view: View) -> None:
        """See Page."""
        super().show(view)
        now, before = view.measuring, self._measured
        self._asked_again(view)
        report = self.query_one(CellTable).report
        if self.is_current and before != (running := now.run if now else None):
            self._measured = running  # one began or ended: the list of runs is another
            self._runs()
            if report is not None and report.run.id == before:
                self._ask(before)
        at, seq = self._read
        if report is None or report.run.ended_at is not None or not self.is_current:
            return
        if view.snapshot and view.snapshot.seq != seq and view.here - at >= AGAIN_S:
            self._ask(report.run.id)

    def _asked_again(self, view: View) -> None:
        """Once the daemon is back: what it could not tell meanwhile."""
        linked, before = view.link is LinkState.LIVE, self._linked
        self._linked = linked
        if linked and not before and self.is_current:
            self._runs()
            runs = self.query_one(RunTable)
            if self.query_one(CellTable).refused and runs.cursor and runs.cursor != SEEN:
                self._ask(runs.cursor)

    def on_row_moved(self, message: RowMoved) -> None:
        """Show the run under the cursor."""
        runs = self.query_one(RunTable)
        cells = self.query_one(CellTable)
        run = None if runs.cursor == SEEN else runs.cursor
        self.query_one(ComparePanel).display = run is None
        cells.display = run is not None
        if run is not None and message.key == run and (cells.report is None or cells.report.run.id != run):
            cells.report = cells.refused = None
            cells.redraw()
            self._ask(run)

    def action_turn(self) -> None:
        """Set the next arm beside the baseline."""
        cells = self.query_one(CellTable)
        if self._report() and len(cells.others) < 2:
            self.services.say("this run has no other arm to set beside the baseline")
        cells.turn()

    def action_resume(self) -> None:
        """Measure what the run under the cursor still lacks."""
        run = self.query_one(RunTable).chosen
        if run is None:
            self.services.say("no run is shown: j and k walk to one")
        elif run.ended_at is not None:
            self.services.say(f"{run.id} is whole: nothing of it is missing")
        else:
            self.services.orders.resume_run(run.id)

    def action_markdown(self) -> None:
        """Copy the report as Markdown."""
        if report := self._report():
            self.app.copy_to_clipboard(markdown.render(page(report)))
            self.services.say(f"copied: {report.run.id} as Markdown")

    def action_html(self) -> None:
        """Write the report as one HTML page and tell where."""
        if report := self._report():
            self._html(report)

    def _report(self) -> Report | None:
        report = self.query_one(CellTable).report
        if report is None:
            self.services.say("no run is shown: j and k walk to one")
        return report

    def _ask(self, run: str) -> None:
        view = self.services.view
        self._read = (view.here, view.snapshot.seq if view.snapshot else None)
        self._tell(run)

    @work(group="runs", exclusive=True)
    async def _runs(self) -> None:
        table = self.query_one(RunTable)
        try:
            table.runs = await self.services.link.runs()
        except SparkdashError as error:
            self.services.say(error.text(), bad=True)
        table.redraw()

    @work(group="report", exclusive=True)
    async def _tell(self, run: str) -> None:
        cells = self.query_one(CellTable)
        try:
            report = await self.services.link.report(run)
        except SparkdashError as error:
            cells.report, cells.refused = None, error.text()
            cells.redraw()
        else:
            if self.query_one(RunTable).cursor == run:
                cells.tell(report)

    @work(group="html", exclusive=True)
    async def _html(self, report: Report) -> None:
        place = Path.cwd() / f"{report.run.id}.html"
        try:
            text = await asyncio.to_thread(lambda: html.render(page(report), drawn(report), html.plotly()))
            await asyncio.to_thread(place.write_text, text, encoding="utf-8")
        except SparkdashError as error:
            self.services.say(error.text(), bad=True)
        except OSError as error:
            self.services.say(f"The page could not be written: {error.strerror} ({place.parent}).", bad=True)
        else:
            self.services.say(f"wrote {place}")
