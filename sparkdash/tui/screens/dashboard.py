"""The dashboard page: one large engine, the others, memory, GPU, requests; in two columns also swaps and log.

Owns: the heights of its panels. Must not know: what they draw.
"""

from __future__ import annotations

from collections.abc import Iterable

from textual import events
from textual.containers import Vertical
from textual.widget import Widget

from sparkdash.tui.layout import TWO_COLUMNS_FROM, Contents, Heights, heights, is_compact, left_cells
from sparkdash.tui.mirror import View
from sparkdash.tui.screens.first_run import FirstRunPage
from sparkdash.tui.widgets.card import EngineCard
from sparkdash.tui.widgets.compare import ComparePanel
from sparkdash.tui.widgets.gpu import GpuRow
from sparkdash.tui.widgets.log import LogPanel
from sparkdash.tui.widgets.memory import MemoryBar
from sparkdash.tui.widgets.panel import AS_TALL_AS_NEEDED, Panel
from sparkdash.tui.widgets.requests import RequestTable
from sparkdash.tui.widgets.residents import Residents, others
from sparkdash.tui.widgets.swaps import SwapTable


class DashboardPage(FirstRunPage):
    """Page of one column, or of two from TWO_COLUMNS_FROM terminal columns on."""

    title_key = "dashboard"
    keys = "f large  s switch  / find  ? help"
    AUTO_FOCUS = "RequestTable"

    _shared: tuple[int, int, Heights, Contents] | None = None
    """Size of the terminal, and the heights that the panels have now for what they show."""

    def body(self) -> Iterable[Widget]:
        """Yield both columns."""
        left = Vertical(
            EngineCard(),
            Residents(),
            MemoryBar(),
            GpuRow(),
            ComparePanel(),
            SwapTable(beside=True, cursor=False),
            id="left",
        )
        right = Vertical(RequestTable(beside=True, cursor=False), LogPanel(), id="right")
        yield Widget(left, right, id="dashboard")

    def show(self, view: View) -> None:
        """Share the rows among the panels, then draw them."""
        self._share(view)
        super().show(view)

    def on_resize(self, _event: events.Resize) -> None:
        """Share the rows anew."""
        self._share(self.services.view)

    def _share(self, view: View) -> None:
        if not self.query(LogPanel):
            return  # it is being made or taken apart
        columns, rows = self.app.size
        two = columns >= TWO_COLUMNS_FROM and not is_compact(rows)
        inner = left_cells(columns) if two else columns
        wanted = self._contents(view, inner, two=two)
        shared = heights(columns, rows, wanted)
        if (columns, rows, shared, wanted) == self._shared:
            return
        self._shared = (columns, rows, shared, wanted)
        memory = self.query_one(MemoryBar)
        memory.chart_rows = shared.memory_chart
        _size(memory, wanted.memory + shared.memory_chart)
        _size(self.query_one(GpuRow), wanted.gpu)
        self.query_one("#left").styles.width = inner if two else "1fr"
        self.query_one("#left").styles.height = "1fr" if two else "auto"
        self.query_one("#dashboard").styles.layout = "horizontal" if two else "vertical"
        _size(self.query_one(EngineCard), shared.card)
        _size(self.query_one(Residents), shared.beside)
        _size(self.query_one(ComparePanel), shared.compare)
        _size(self.query_one(SwapTable), shared.swaps)
        _size(self.query_one(RequestTable), shared.requests)
        _size(self.query_one(LogPanel), shared.log)

    def _contents(self, view: View, width: int, *, two: bool) -> Contents:
        def rows(panel: Panel) -> int:
            return len(panel.draw(view, width, AS_TALL_AS_NEEDED))

        memory = self.query_one(MemoryBar)
        return Contents(
            beside=len(others(view)),
            memory=memory.rows_without_chart(view, width),
            gpu=rows(self.query_one(GpuRow)),
            compare=rows(self.query_one(ComparePanel)) if two else 0,
            charted=memory.has_chart(view),
        )


def _size(panel: Panel, rows: int) -> None:
    """Give a panel its rows; without any it is hidden."""
    panel.display = rows > 0
    panel.styles.height = rows
