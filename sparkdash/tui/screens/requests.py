"""The requests page: the running requests, and with `p` the recorded past, filtered and sorted by the daemon."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual import work
from textual.binding import Binding, BindingType
from textual.widget import Widget

from sparkdash.domain.history import RequestOrder
from sparkdash.domain.request import Request
from sparkdash.errors import SparkdashError
from sparkdash.tui.mirror import View
from sparkdash.tui.screens.page import Page
from sparkdash.tui.screens.replay import ReplayDialog, request_lines
from sparkdash.tui.text import EdgeText, Line, Style, frame, key_hints, styled
from sparkdash.tui.widgets.header import Hints
from sparkdash.tui.widgets.panel import Panel, RowChosen, RowMoved, SearchChanged, SearchField
from sparkdash.tui.widgets.requests import PastTable, RequestTable

if TYPE_CHECKING:
    from sparkdash.tui.daemon_client import DaemonClient

_NAMED = re.compile(r"(client|profile|status|finish):(\S+)")
_GREATER = re.compile(r"(ttft|wait|took|out|prompt)>(\d+(?:\.\d+)?)(ms|s|m|h|k)?")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "k": 1000.0, None: 1.0}
HELP = "client:codex  profile:gpt-oss-120b  status:5xx  ttft>2s  wait>10s  took>1m  out>1k"


@dataclass(frozen=True, slots=True)
class RequestFilter:
    """Conditions that a request must meet; None and empty: any."""

    client: str | None = None
    profile: str | None = None
    status: str | None = None
    """An HTTP status, a class such as 5xx, or done, failed, gone."""
    finish: str | None = None
    least: tuple[tuple[str, float], ...] = ()
    words: str = ""

    def fits(self, one: Request) -> bool:
        named = ((self.client, one.client), (self.profile, one.profile), (self.finish, one.finish_reason))
        if any(want is not None and want.lower() not in (has or "").lower() for want, has in named):
            return False
        if self.status is not None and not _has_status(one, self.status.lower()):
            return False
        return self._has_figures(one) and self._has_words(one)

    def _has_figures(self, one: Request) -> bool:
        figures = request_figures(one)
        return all((figures.get(name) or 0.0) > value for name, value in self.least)

    def _has_words(self, one: Request) -> bool:
        text = f"{one.id} {one.client} {one.profile} {one.route} {one.finish_reason} {one.error} "
        text = f"{text}{one.key} {one.session}".lower()
        return all(word in text for word in self.words.lower().split())


def parse_filter(text: str) -> RequestFilter:
    named = dict(_NAMED.findall(text))
    least = tuple((name, float(value) * _UNITS[unit or None]) for name, value, unit in _GREATER.findall(text))
    words = " ".join(_GREATER.sub("", _NAMED.sub("", text)).split())
    return RequestFilter(
        client=named.get("client"), profile=named.get("profile"), status=named.get("status"),
        finish=named.get("finish"), least=least, words=words,
    )  # fmt: skip


def request_figures(one: Request) -> dict[str, float | None]:
    waited = one.granted_at - one.started_at if one.granted_at is not None else None
    took = one.finished_at - one.started_at if one.finished_at is not None else None
    return {
        "ttft": one.ttft_s, "wait": waited, "took": took, "out": one.completion_tokens, "prompt": one.prompt_tokens,
    }  # fmt: skip


def _has_status(one: Request, want: str) -> bool:
    if want == one.state.value:
        return True
    return one.status is not None and re.fullmatch(re.escape(want).replace("x", r"\d"), str(one.status)) is not None


PART_ROWS, PAGE_ROWS, MOST_PAGES = 200, 500, 20
"""Rows of one part, rows of one answer, and answers that are read for one part of a filter that few rows fit."""


class PastReader:
    """Reader of one list. Client and profile are looked for here, where parts of names count."""

    def __init__(self, daemon: "DaemonClient", wanted: RequestFilter, order: RequestOrder) -> None:
        self._daemon = daemon
        self._wanted = wanted
        self._order = order
        self._after: str | None = None
        self._surplus: list[Request] = []
        self._is_read = False
        self.looked_at = 0
        """Requests that were read, whether they fit or not."""

    @property
    def ended(self) -> bool:
        return self._is_read and not self._surplus

    async def more(self) -> tuple[Request, ...]:
        """Return the next part; it may be small, or empty, before the end. Raises SparkdashError."""
        found, pages, status = self._surplus, 0, self._wanted.status
        while not self._is_read and len(found) < PART_ROWS and pages < MOST_PAGES:
            page = await self._daemon.history_requests(
                status=None if status is None or "x" in status else status,  # a class of them is looked for here
                min_ttft=dict(self._wanted.least).get("ttft"),
                sort=self._order,
                limit=PAGE_ROWS,
                after=self._after,
            )
            found += [one for one in page.requests if self._wanted.fits(one)]
            self.looked_at += len(page.requests)
            self._after, self._is_read, pages = page.next, page.next is None, pages + 1
        self._surplus = found[PART_ROWS:]
        return tuple(found[:PART_ROWS])


ORDERS: dict[RequestOrder, str] = {
    "newest": "newest first", "duration": "slowest first", "ttft": "slowest first token first",
    "wait": "longest wait first", "output": "longest answer first",
}  # fmt: skip
PAST_KEYS = "p live  ⏎ open  R replay  o order  / filter  r read again  ? help"
PAUSE_S = 0.3
"""Time after a letter of the filter before the past is read."""
AROUND_S = 1.0


class RequestDetail(Panel):
    """Time line and facts of the request under the cursor, in a tall terminal."""

    def draw(self, view: View, width: int, height: int) -> list[Line]:
        tables = (table for table in self.screen.query(RequestTable) if table.display)  # none while the page closes
        one = next((one for table in tables for one in table.shown(view) if one.id == table.cursor), None)
        if one is None:
            return []
        keys = key_hints(("⏎", "opens"), ("R", "replays") if one.finished_at else ("x", "ends"))
        told, title = request_lines(one, (), view, width - 4), f"{one.client} · {one.profile} · {one.id}"
        return frame(told, width, EdgeText(styled(title, Style.STRONG), keys), height=height)


class RequestsPage(Page):
    """Page of the requests, running ones or past ones."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("p", "past", "the recorded past, or the running requests"),
        Binding("o", "order", "order of the past"),
        Binding("r", "read", "read the past again"),
        Binding("R", "replay", "replay the request on another profile"),
    ]

    title_key = "requests"
    keys = "p past  x end it  ⏎ open  R replay  / filter  ? help"
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
        """At the end of the past read further back."""
        self.query_one(RequestDetail).redraw()
        found = self.query_one(PastTable).found
        if self._is_past and found and found[-1].id == message.key:
            self._read_on()

    def on_row_chosen(self, message: RowChosen) -> None:
        message.stop()
        if found := self._found(message.key):
            self._open(found)

    def _found(self, key: str | None) -> Request | None:
        shown = self.query_one(PastTable).found if self._is_past else self.services.view.requests
        return next((one for one in shown if one.id == key), None)

    def on_search_changed(self, message: SearchChanged) -> None:
        if not self._is_past:
            return  # the handler of the base comes next
        message.prevent_default()
        self._filter = parse_filter(message.text)
        self.set_timer(PAUSE_S, partial(self._read_if, self._filter))
        if message.left:
            self.set_focus(self.query_one(PastTable))

    def end_what_is_here(self) -> None:
        request_id = self.query_one(RequestTable).cursor
        if request_id and not self._is_past:
            self.services.orders.cancel_request(request_id)

    def action_replay(self) -> None:
        table = self.query_one(PastTable) if self._is_past else self.query_one(RequestTable)
        found = self._found(table.cursor)
        if found is None or found.finished_at is None:
            self.services.say("Only a request that has ended can be replayed.")
        else:
            self._replay(found)

    def action_past(self) -> None:
        live, past = self.query_one(RequestTable), self.query_one(PastTable)
        live.display, past.display = past.display, not past.display
        self.set_focus(past if past.display else live)
        self.query_one(SearchField).placeholder = HELP if past.display else "find"
        for hints in self.query(Hints):
            hints.change_keys(PAST_KEYS if past.display else self.keys)
        if past.display:
            self.services.say(f"The past, {ORDERS[self._order]}; o changes the order, / filters.")
            self._read()
        self.call_after_refresh(self.show, self.services.view)

    def on_screen_resume(self) -> None:
        """Read what ended meanwhile, unless the list was read further back: its cursor would be lost."""
        if self._is_past and len(self.query_one(PastTable).found) <= PART_ROWS:
            self._read()

    def action_order(self) -> None:
        if not self._is_past:
            self.services.say("o sorts the past, which p shows.")
            return
        names = list(ORDERS)
        self._order = names[(names.index(self._order) + 1) % len(names)]
        table = self.query_one(PastTable)
        table.found, table.cursor, table.sorted_by = (), None, None  # the slowest is at the top, under the cursor
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
        reader = self._reader = PastReader(self.services.daemon, self._filter, self._order)
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
                fits = f"No past request fits. Conditions: {HELP}"
                table.nothing = fits if self._filter != RequestFilter() else "No request was recorded yet."
        table.redraw()

    @work(group="timeline", exclusive=True)
    async def _open(self, one: Request) -> None:
        services = self.services
        try:
            begin, end = one.started_at - AROUND_S, (one.granted_at or one.finished_at or services.view.now) + AROUND_S
            marks = (await services.daemon.history_marks(since=begin, until=end, profile=one.profile)).marks
        except SparkdashError:  # the wait then stays whole
            marks = ()
        can = {"R": "replay on another profile"} if one.finished_at is not None else {"x": "end it"}

        def told(width: int) -> list[Line]:
            return request_lines(self._found(one.id) or one, marks, services.view, width)

        answer = await services.choose(f"{one.client} · {one.profile} · {one.id}", told, yes=None, again="", others=can)
        if answer == "R":
            self._replay(one)
        elif answer:
            services.orders.cancel_request(one.id)

    def _replay(self, one: Request) -> None:
        if (snapshot := self.services.view.snapshot) is not None:
            self.app.push_screen(ReplayDialog(one, snapshot))
