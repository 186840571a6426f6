"""The requests: open ones in order of arrival, then the ended ones.

Owns: the columns. Rule: what the engine's usage has not told yet is "-"; nothing is counted from chunks.
"""

from __future__ import annotations

from sparkdash.domain.lease import Request
from sparkdash.domain.state import OPEN
from sparkdash.tui.ink import EMPTY, Ink, Line, clip, dimmed, pad, right, say
from sparkdash.tui.mirror import View
from sparkdash.tui.widgets import words
from sparkdash.tui.widgets.panel import Panel
from sparkdash.tui.widgets.table import Row, Table
from sparkdash.units import DASH, duration, number

CLIENT, FIGURES, STATE = 12, (7, 7, 6, 7, 7), 16
NAMES = ("prompt", "cached", "out", "ttft", "tok/s")
LEAST_PROFILE = 12


def _profile_cells(width: int) -> int:
    return max(width - 2 - CLIENT - sum(FIGURES) - STATE - 2, LEAST_PROFILE)


class RequestTable(Table):
    """Every request that the daemon still remembers."""

    title = "requests"
    nothing = "No request yet. Point a client at the URL on the card; `model` names the profile."

    def __init__(self, *, beside: bool = False, cursor: bool = True, **rest: object) -> None:
        """`beside`: it shares its page, and is framed where panels stand side by side."""
        super().__init__(cursor=cursor, **rest)
        self._beside = beside

    @property
    def framed(self) -> bool:
        """See Table."""
        return self._beside and self.screen.has_class("-wide")

    def head(self, width: int) -> Line:
        """See Table."""
        figures = "".join(f"{name:>{cells}}" for name, cells in zip(NAMES, FIGURES, strict=True))
        return say(f" {'client':<{CLIENT}} {'profile':<{_profile_cells(width)}}{figures}  state", Ink.DIM)

    def rows(self, view: View, width: int) -> list[Row]:
        """See Table."""
        return [Row(request.id, _line(request, view, width), _copy(request)) for request in view.requests]


def _line(request: Request, view: View, width: int) -> Line:
    figures = (
        number(request.prompt_tokens),
        number(request.cached_tokens),
        number(request.completion_tokens),
        number(request.ttft_s, 2),
        number(request.decode_tok_s, 1),
    )
    line = say(" ") + pad(say(request.client), CLIENT) + say(" ") + pad(say(request.profile), _profile_cells(width))
    for figure, cells in zip(figures, FIGURES, strict=True):
        line += right(say(figure, Ink.DIM if figure == DASH else Ink.PLAIN), cells)
    if request.state not in OPEN:
        line = dimmed(line)
    return line + say("  ") + words.request_state(request, view)


def _copy(request: Request) -> str:
    return request.model_dump_json(exclude_none=True)


class RequestDetail(Panel):
    """What the table has no room for, of the request under the cursor. `chosen` is its id."""

    chosen: str | None = None

    def draw(self, view: View, width: int, height: int) -> list[Line]:
        """See Panel."""
        request = next((r for r in view.requests if r.id == self.chosen), None)
        if request is None:
            return [EMPTY] * height
        return [clip(line, width) for line in _detail(request, view)][:height]


def _detail(request: Request, view: View) -> list[Line]:
    waited = (
        request.granted_at or (view.now if request.finished_at is None else request.finished_at)
    ) - request.started_at
    whole = (request.finished_at or view.now) - request.started_at
    parts = [
        f"id {request.id}",
        f"{request.route}{' stream' if request.stream else ''}",
        f"status {number(request.status)}",
        f"ended by {request.finish_reason or DASH}",
    ]
    times = [
        f"waited {duration(max(waited, 0.0))}",
        f"ttft {number(request.ttft_s, 3, ' s')}",
        f"in all {duration(max(whole, 0.0))}",
    ]
    error = say(f" error {request.error}", Ink.BAD) if request.error else EMPTY
    made = say(" made by sparkdash itself (warm-up or demo traffic)", Ink.DIM) if request.internal else EMPTY
    return [say(" " + " · ".join(parts), Ink.PLAIN), say(" " + " · ".join(times), Ink.PLAIN), error or made]
