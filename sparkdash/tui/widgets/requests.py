"""Table of the requests, open ones in order of arrival, then ended ones.

Owns: the columns. Rule: figures missing in the engine's usage are "-"; nothing is counted from chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from pydantic_core import to_json

from sparkdash.domain.lease import Request
from sparkdash.domain.state import OPEN
from sparkdash.tui.ink import EMPTY, EdgeText, Ink, Line, align_right, clip, dimmed, frame, inked, pad
from sparkdash.tui.lines import words
from sparkdash.tui.mirror import LinkState, View
from sparkdash.tui.widgets.panel import Panel
from sparkdash.tui.widgets.table import Table, TableRow
from sparkdash.units import DASH, duration, number

STATE, LEAST_PROFILE = 16, 12
CLIENT, WHOLE_CLIENT, ROOMY = 14, 20, 120
"""Width of the client's name in cells, and its width in terminals of ROOMY columns and more."""


class RequestColumn(NamedTuple):
    """Column of one figure; a narrow terminal omits the columns with the highest `gives_way` first."""

    name: str
    cells: int
    gives_way: int
    text: Callable[[Request], str]


COLUMNS = (
    RequestColumn("prompt", 7, 2, lambda r: number(r.prompt_tokens)),
    RequestColumn("cached", 7, 3, lambda r: number(r.cached_tokens)),
    RequestColumn("out", 6, 1, lambda r: number(r.completion_tokens)),
    RequestColumn("think", 6, 4, lambda r: number(r.reasoning_tokens)),
    RequestColumn("ttft", 7, 1, lambda r: number(r.ttft_s, 2)),
    RequestColumn("tok/s", 7, 0, lambda r: number(r.decode_tok_s, 1)),
)


def _columns(width: int) -> list[RequestColumn]:
    columns = list(COLUMNS)
    while columns and _profile_cells(width, columns) < LEAST_PROFILE:
        columns.remove(max(columns, key=lambda column: column.gives_way))
    return columns


def _client(width: int) -> int:
    return WHOLE_CLIENT if width >= ROOMY else CLIENT


def _profile_cells(width: int, columns: Sequence[RequestColumn]) -> int:
    return width - 4 - _client(width) - STATE - sum(column.cells for column in columns)


class RequestTable(Table):
    """Table of every request that the daemon remembers."""

    title = "requests"
    live = True
    nothing = "No request yet. Clients use the URL on the card; `model` names the profile."

    def __init__(self, *, beside: bool = False, cursor: bool = True, **rest: object) -> None:
        """Make the table. `beside`: framed on wide terminals, where panels stand side by side."""
        super().__init__(cursor=cursor, **rest)
        self._beside = beside

    @property
    def framed(self) -> bool:
        """Whether the table has a frame."""
        return self._beside and self.screen.has_class("-wide")

    def head(self, width: int) -> Line:
        """Return the column titles."""
        columns = _columns(width)
        figures = "".join(f"{column.name:>{column.cells}}" for column in columns)
        profile = pad(inked("profile", Ink.DIM), _profile_cells(width, columns))
        return inked(f" {'client':<{_client(width)}} ", Ink.DIM) + profile + inked(f"{figures}  state", Ink.DIM)

    def rows(self, view: View, width: int) -> list[TableRow]:
        """Return a row for each request."""
        return [TableRow(one.id, _line(one, view, width), _copy(one), _words(one)) for one in view.requests]


def _line(request: Request, view: View, width: int) -> Line:
    columns = _columns(width)
    cells = _profile_cells(width, columns)
    line = inked(" ") + pad(inked(request.client), _client(width)) + inked(" ") + pad(inked(request.profile), cells)
    for column in columns:
        told = column.text(request)
        line += align_right(inked(told, Ink.DIM if told == DASH else Ink.PLAIN), column.cells)
    if request.state not in OPEN:
        line = dimmed(line)
    line += inked("  ") + words.request_state(request, view)
    return line if view.link is LinkState.LIVE else dimmed(line)


def _copy(request: Request) -> str:
    return to_json(request, exclude_none=True).decode()


def _words(request: Request) -> str:
    """Return the text that the search looks in: every request's JSON has the same keys."""
    told = (
        request.id,
        request.client,
        request.key,
        request.profile,
        request.route,
        request.finish_reason,
        request.error,
    )
    return " ".join(word for word in told if word)


class RequestDetail(Panel):
    """Details of the request under the cursor. `chosen` is its id."""

    chosen: str | None = None

    def draw(self, view: View, width: int, height: int) -> list[Line]:
        """Return the framed details."""
        request = next((r for r in view.requests if r.id == self.chosen), None)
        lines = [clip(line, width - 4) for line in _detail(request, view)] if request else []
        title = inked(f"{request.client} · {request.id}") if request else inked("no request")
        return frame([*lines, *[EMPTY] * (height - 2 - len(lines))], width, EdgeText(title))


def _detail(request: Request, view: View) -> list[Line]:
    waited = (
        request.granted_at or (view.now if request.finished_at is None else request.finished_at)
    ) - request.started_at
    whole = (request.finished_at or view.now) - request.started_at
    parts = [
        f"{request.route}{' stream' if request.stream else ''}",
        f"status {number(request.status)}",
        f"ended by {request.finish_reason or DASH}",
    ]
    times = [
        f"waited {duration(max(waited, 0.0))}",
        f"ttft {number(request.ttft_s, 3, ' s')}",
        f"total {duration(max(whole, 0.0))}",
    ]
    wrong = f"error {request.error}" if request.error else words.stuck_on(request, view)
    error = inked(wrong, Ink.BAD)
    made = inked("sent by sparkdash itself: the demo's traffic", Ink.DIM) if request.internal else EMPTY
    return [inked(" · ".join(parts), Ink.PLAIN), inked(" · ".join(times), Ink.PLAIN), error or made]
