"""The pages requests, history and logs."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widget import Widget

from sparkdash.tui.messages import RowMoved
from sparkdash.tui.screens.dialog import Dialog
from sparkdash.tui.screens.page import Page
from sparkdash.tui.widgets.log import LogPanel
from sparkdash.tui.widgets.requests import RequestDetail, RequestTable
from sparkdash.tui.widgets.swaps import NoticeList, SwapDetail, SwapTable, notice_lines


class RequestsPage(Page):
    """Page of all remembered requests."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("c", "cancel", "end the request", show=False)]

    title_key = "requests"
    keys = "c end it  y copy  / find  ? help"

    def body(self) -> Iterable[Widget]:
        """Yield the request table and the details of one request."""
        yield RequestTable()
        yield RequestDetail()

    def action_cancel(self) -> None:
        """End the request under the cursor."""
        if request_id := self.query_one(RequestTable).cursor:
            self.services.orders.cancel_request(request_id)

    def on_row_moved(self, message: RowMoved) -> None:
        """Show the details of the request under the cursor."""
        detail = self.query_one(RequestDetail)
        detail.chosen = message.key
        detail.redraw()


class HistoryPage(Page):
    """Page of the ended swaps and the notices."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("n", "notices", "every notice", show=False)]

    title_key = "history"
    keys = "n notices  y copy  / find  ? help"

    def body(self) -> Iterable[Widget]:
        """Yield the swap table, the details of one swap and the notices."""
        yield SwapTable()
        yield SwapDetail()
        yield NoticeList()

    def action_notices(self) -> None:
        """Show every notice and every problem of a profile file in full."""
        self.app.push_screen(Dialog("notices", partial(notice_lines, self.services.view)))

    def on_row_moved(self, message: RowMoved) -> None:
        """Show the details of the swap under the cursor."""
        detail = self.query_one(SwapDetail)
        detail.chosen = message.key
        detail.redraw()


class LogsPage(Page):
    """Page of one engine's log."""

    title_key = "logs"
    keys = "space hold  h l sideways  / find  tab engine  ? help"

    def body(self) -> Iterable[Widget]:
        """Yield the log."""
        yield LogPanel()
