"""The box page: who holds the memory of the daemon's box, and the ways to its doctor and its settings.

Owns: when the account is read: at opening and with `r`, since counting takes a second of the box's time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual import work
from textual.binding import Binding, BindingType
from textual.widget import Widget

from sparkdash.errors import SparkdashError
from sparkdash.tui.messages import RowMoved
from sparkdash.tui.screens.page import Page
from sparkdash.tui.widgets.holders import HolderDetail, HolderTable


class BoxPage(Page):
    """Page of the memory by holder."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("r", "read", "read again", show=False)]

    title_key = "box"
    keys = "r read again  , settings  D doctor  / find  ? help"

    def body(self) -> Iterable[Widget]:
        """Yield the table and the totals."""
        yield HolderTable()
        yield HolderDetail()

    def on_screen_resume(self) -> None:
        """Count the memory when the page opens."""
        self._read()

    def action_read(self) -> None:
        """Count the memory again."""
        self._read()

    def on_row_moved(self, message: RowMoved) -> None:
        """Show how to free what the holder under the cursor has."""
        detail = self.query_one(HolderDetail)
        detail.chosen = self.query_one(HolderTable).holding(message.key)
        detail.redraw()

    @work(group="memory", exclusive=True)
    async def _read(self) -> None:
        table, detail = self.query_one(HolderTable), self.query_one(HolderDetail)
        try:
            table.account = detail.account = await self.services.link.memory()
        except SparkdashError as error:
            table.nothing = error.text()
        detail.chosen = table.holding(table.cursor)
        table.redraw()
        detail.redraw()
