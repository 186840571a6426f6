"""The requests page: the running requests, and with `p` the recorded past, filtered and sorted by the daemon."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import ClassVar

from textual import work
from textual.binding import Binding, BindingType
from textual.widget import Widget

from sparkdash.domain.history import RequestOrder
from sparkdash.domain.request import Request
from sparkdash.errors import SparkdashError
from sparkdash.tui.screens.page import Page
from sparkdash.tui.screens.replay import ReplayDialog, TimelineDialog
from sparkdash.tui.widgets.panel import RowChosen, RowMoved, SearchChanged
from sparkdash.tui.widgets.past_requests import HELP, PastReader, PastTable, RequestFilter, parse_filter
from sparkdash.tui.widgets.requests import RequestDetail, RequestTable

ORDERS: dict[RequestOrder, str] = {
    "newest": "newest first", "ttft": "slowest first token first", "wait": "longest wait first",
    "duration": "slowest first", "output": "longest answer first",
}  # fmt: skip
PAUSE_S = 0.3
"""Time after a letter of the filter before the past is read."""
AROUND_S = 1.0


class RequestsPage(Page):
    """Page of the requests, running ones or past ones."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("c", "cancel", "end the request", show=False),
        Binding("p", "past", "the past", show=False),
        Binding("o", "order", "order", show=False),
        Binding("r", "read", "read again", show=False),
        Binding("R", "replay", "replay", show=False),
    ]

    title_key = "requests"
    keys = "p past  c end it  o order  ⏎ time line  R replay  / filter  ? help"
    AUTO_FOCUS = "RequestTable"

    def __init__(self) -> None:
        super().__init__()
        self._filter = RequestFilter()
        self._order: RequestOrder = "newest"
        self._reader: PastReader | None = None

    def body(self) -> Iterable[Widget]:
        yield RequestTable()
        yield PastTable()
        yield RequestDetail()

    def on_mount(self) -> None:
        self.query_one(PastTable).display = False

    @property
    def _is_past(self) -> bool:
        return bool(self.query_one(PastTable).display)

    def on_row_moved(self, message: RowMoved) -> None:
        """Show the details of the request under the cursor; at the end of the past read further back."""
        if not self._is_past:
            detail = self.query_one(RequestDetail)
            detail.chosen = message.key
            detail.redraw()
        elif self.query_one(PastTable).is_last(message.key):
            self._read_on()

    def on_row_chosen(self, message: RowChosen) -> None:
        message.stop()
        found = self._ended(message.key)
        if found is None:
            self.services.say("This request has not ended yet: its time line comes with its end.")
        else:
            self._open(found)

    def _ended(self, key: str | None) -> Request | None:
        if self._is_past:
            return self.query_one(PastTable).request(key)
        return next((one for one in self.services.view.requests if one.id == key and one.finished_at), None)

    def on_search_changed(self, message: SearchChanged) -> None:
        if not self._is_past:
            return  # the handler of the base comes next
        message.prevent_default()
        self._filter = parse_filter(message.text)
        self.set_timer(PAUSE_S, partial(self._read_if, self._filter))
        if message.left:
            self.set_focus(self.query_one(PastTable))

    def action_cancel(self) -> None:
        request_id = self.query_one(RequestTable).cursor
        if request_id and not self._is_past:
            self.services.orders.cancel_request(request_id)

    def action_replay(self) -> None:
        table = self.query_one(PastTable) if self._is_past else self.query_one(RequestTable)
        found = self._ended(table.cursor)
        if found is None:
            self.services.say("Only a request that has ended can be replayed.")
        else:
            self._replay(found)

    def action_past(self) -> None:
        live, past = self.query_one(RequestTable), self.query_one(PastTable)
        live.display, past.display = past.display, not past.display
        self.query_one(RequestDetail).display = live.display
        self.set_focus(past if past.display else live)
        if past.display:
            self.services.say(f"The past, {ORDERS[self._order]}. o changes the order. / filters: {HELP}")
            self._read()
        self.call_after_refresh(self.show, self.services.view)

    def action_order(self) -> None:
        names = list(ORDERS)
        self._order = names[(names.index(self._order) + 1) % len(names)]
        if self._is_past:
            self.services.say(f"The past, {ORDERS[self._order]}.")
            self._read()

    def action_read(self) -> None:
        if not self._is_past:
            return
        table = self.query_one(PastTable)
        if table.goes_on and not table.found:
            self._read_on()
        else:
            self._read()

    def _read_if(self, wanted: RequestFilter) -> None:
        if wanted is self._filter:
            self._read()

    @work(group="past", exclusive=True)
    async def _read(self) -> None:
        reader = self._reader = PastReader(self.services.link, self._filter, self._order)
        await self._append(reader, ())

    @work(group="past", exclusive=True)
    async def _read_on(self) -> None:
        if self._reader is not None and not self._reader.ended:
            await self._append(self._reader, self.query_one(PastTable).found)

    async def _append(self, reader: PastReader, before: tuple[Request, ...]) -> None:
        table = self.query_one(PastTable)
        try:
            table.found = before + await reader.more()
        except SparkdashError as error:
            table.found, table.nothing = before, error.text()
        else:
            table.goes_on = not reader.ended
            if table.goes_on:
                table.nothing = f"None of the first {reader.looked_at:,} requests fits; r reads on."
            else:
                table.nothing = f"No past request fits. Conditions: {HELP}"
        table.redraw()

    @work(group="timeline", exclusive=True)
    async def _open(self, one: Request) -> None:
        try:
            begin, end = one.started_at - AROUND_S, (one.granted_at or one.finished_at or one.started_at) + AROUND_S
            marks = (await self.services.link.history_marks(since=begin, until=end, profile=one.profile)).marks
        except SparkdashError:  # the wait then stays whole
            marks = ()
        if await self.app.push_screen_wait(TimelineDialog(one, marks)):
            self._replay(one)

    def _replay(self, one: Request) -> None:
        if (snapshot := self.services.view.snapshot) is not None:
            self.app.push_screen(ReplayDialog(one, snapshot))
