"""Panel of an engine's log, with pause and search.

Rule: pausing stops the display, not the reading; a hidden log is not read.
"""

import re
from collections import deque
from typing import ClassVar, NamedTuple

from textual import events
from textual.binding import Binding, BindingType

from sparkdash.domain.engine import Engine
from sparkdash.errors import SparkdashError
from sparkdash.tui.lines.log_lines import TIME, level_style, log_line
from sparkdash.tui.mirror import ConnectionState, View
from sparkdash.tui.text import (
    EDGE_ROOM,
    EMPTY,
    EdgeText,
    Line,
    Span,
    Style,
    clip,
    frame,
    join,
    key_hints,
    length,
    strip_controls,
    styled,
)
from sparkdash.tui.widgets.panel import LinesArrived, Walked
from sparkdash.units import counted, natural

_ACCESS = re.compile(
    r'"(?P<method>[A-Z]{3,7}) (?P<path>\S+) HTTP/[\d.]+" (?P<status>\d{3})'
    r"|request: (?P<verb>[A-Z]{3,7}) (?P<route>\S+) \S+ (?P<code>\d{3})"
)
"""Access lines of uvicorn (vLLM, SGLang) and of llama.cpp."""


class LogRow(NamedTuple):
    """Line of a log, or `count` access lines folded into one row."""

    text: str
    lines: int = 1
    odd: int = 0
    """Folded lines whose status is no success."""
    last_odd: str = ""

    @property
    def folded(self) -> bool:
        return self.lines > 1

    def shown(self) -> str:
        if not self.folded:
            return self.text
        status = f"{self.odd} not 2xx: {self.last_odd}" if self.odd else "all 2xx"
        return f"··· {self.lines} access lines, {status} ···"


def as_row(line: str) -> LogRow:
    found = _ACCESS.search(line)
    if found is None:
        return LogRow(line)
    method, path = found["method"] or found["verb"], found["path"] or found["route"]
    status = found["status"] or found["code"]
    odd = not status.startswith("2")
    return LogRow(line, odd=int(odd), last_odd=f"{method} {path} {status}" if odd else "")


def add_folded(rows: list[LogRow], line: str) -> None:
    """Append a line; an access line after access lines joins their row."""
    row = as_row(line)
    if rows and _is_access(row) and _is_access(rows[-1]):
        last = rows[-1]
        rows[-1] = last._replace(
            text=row.text, lines=last.lines + 1, odd=last.odd + row.odd, last_odd=row.last_odd or last.last_odd
        )
    else:
        rows.append(row)


def drop_first(rows: list[LogRow]) -> int:
    """Forget the oldest line; return the number of rows that went with it."""
    if rows and rows[0].folded:
        rows[0] = rows[0]._replace(lines=rows[0].lines - 1)
        return 0
    del rows[:1]
    return 1


def _is_access(row: LogRow) -> bool:
    return row.folded or bool(_ACCESS.search(row.text))


KEPT = 5000
"""Lines kept; a load writes a few hundred."""
SIDE = 16


class LogPanel(Walked):
    """Framed log of the chosen engine, else of the engine on the card."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("right,l", f"side({SIDE})", "scroll long lines"),
        Binding("left,h", f"side(-{SIDE})", "scroll long lines"),
        Binding("space", "pause", "hold the log, or follow it"),
        Binding("o", "fold", "fold access lines and prefixes, or show all"),
        Binding("n", "next(1)", "next line found"),
        Binding("N", "next(-1)", "line found before"),
        Binding("right_square_bracket,tab", "engine(1)", "log of the next engine"),
        Binding("left_square_bracket", "engine(-1)", "log of the engine before"),
    ]

    keys = key_hints(("space", "hold"), ("[ ]", "engine"), ("o", "raw"))

    def __init__(self) -> None:
        super().__init__()
        self.lines: deque[str] = deque(maxlen=KEPT)
        self.search = ""
        self.folds = True
        self._rows: list[LogRow] = []
        """Rows shown for the lines: a run of access lines is one row while `folds`."""
        self._hit: int | None = None
        """Row of the found text that was gone to last."""
        self.chosen: str | None = None
        self._source: tuple[str, str | None] | None = None
        """Profile and container of the log that is read; None when none is."""
        self._whose = "no engine"
        self._top: int | None = None
        """First visible line; None follows the end."""
        self._left = 0
        self._ended: str | None = None
        self._was_connected = True

    def show(self, view: View) -> None:
        back = view.connection is ConnectionState.LIVE and not self._was_connected
        self._was_connected = view.connection is ConnectionState.LIVE
        if back and self._ended:  # it ended with the link, and the engine may go on
            self._source = None
        if self.size.width:
            self._turn_to(self._wanted_source(view))
        super().show(view)

    def draw(self, view: View, width: int, height: int) -> list[Line]:  # noqa: ARG002 - the lines are the panel's own
        room = max(height - 2, 0)
        begin = max(len(self._rows) - room, 0) if self._top is None else self._top
        shown = list(enumerate(self._rows[begin : begin + room], begin))
        body = [self._styled(row, width - 4, here=place == self._hit) for place, row in shown]
        count = len(self._rows)
        mode = styled("following", Style.GOOD)
        if self._top is not None:
            mode = styled(f"held at {begin + 1}-{min(begin + room, count)} of {count}", Style.WARN)
        left = styled("log ") + styled(self._whose, Style.STRONG)
        far = join([self.keys, mode], styled("  ")) if self.has_focus else mode
        head = EdgeText(left, far if length(left) + length(far) <= width - EDGE_ROOM else mode)
        silence = self._ended or ("The log is empty." if self._source else "No engine is running, so there is no log.")
        body = body or [styled(silence, Style.DIM)]
        return frame(body, width, head, self._foot(), height=height, lit=self.has_focus)

    def find(self, text: str) -> None:
        self.search = text
        self._refold()
        if text:
            self._seek(range(len(self._rows) - 1, -1, -1))
        self.redraw()

    def action_move(self, by: int) -> None:
        room = self.size.height - 2
        last = max(len(self._rows) - room, 0)
        top = (last if self._top is None else self._top) + by
        self._top = None if top >= last else max(top, 0)
        self.redraw()

    def action_first(self) -> None:
        self._top = 0
        self.redraw()

    def action_last(self) -> None:
        self._top = None
        self.redraw()

    def action_side(self, by: int) -> None:
        self._left = max(self._left + by, 0)
        self.redraw()

    def action_pause(self) -> None:
        self._top = max(len(self._rows) - (self.size.height - 2), 0) if self._top is None else None
        self.redraw()

    def action_fold(self) -> None:
        self.folds = not self.folds
        self._refold()
        self.redraw()

    def action_next(self, way: int) -> None:
        at = self._hit if self._hit is not None else len(self._rows)
        self._seek(range(at + 1, len(self._rows)) if way > 0 else range(at - 1, -1, -1))
        self.redraw()

    def action_engine(self, way: int) -> None:
        snapshot = self.services.view.snapshot
        names = sorted(snapshot.engines, key=natural) if snapshot else []
        if names:
            at = names.index(self._whose) if self._whose in names else -way
            self.chosen = names[(at + way) % len(names)]
            self.redraw()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Leave `n` to the app while nothing is searched for."""
        return bool(self.search) if action == "next" else super().check_action(action, parameters)

    def on_hide(self, _event: events.Hide) -> None:
        self.stop_reading()

    def stop_reading(self) -> None:
        self.workers.cancel_node(self)
        self._source = None

    def _wanted_source(self, view: View) -> tuple[str, str | None] | None:
        engines = view.snapshot.engines if view.snapshot else {}
        engine: Engine | None = engines.get(self.chosen or "")
        if engine is None and view.swap and view.swap.target:
            engine = engines.get(view.swap.target)
        engine = engine or view.engine
        return (engine.profile, engine.container) if engine else None

    def _turn_to(self, source: tuple[str, str | None] | None) -> None:
        if source is None and self._ended:
            # the engine has left and said its last: should it come back under the same name, its log is a new one
            self._source = None
        if source is None or source == self._source:
            return
        self._source, self._whose = source, source[0]
        self.lines.clear()
        self._rows.clear()
        self._top, self._left, self._ended, self._hit = None, 0, None, None
        self.run_worker(self._read(source[0]), group="log", exclusive=True)

    async def _read(self, profile: str) -> None:
        try:
            async for line in self.services.daemon.follow_log(profile):
                self._add(strip_controls(line))
        except SparkdashError as error:
            self._ended = error.text()
        else:
            self._ended = "end of the log"
        self.post_message(LinesArrived())

    def _add(self, line: str) -> None:
        if len(self.lines) == KEPT:
            gone = drop_first(self._rows)
            self._top = max(self._top - gone, 0) if self._top else self._top
            self._hit = self._hit - gone if self._hit else None
        self.lines.append(line)
        self._put(line)
        self.post_message(LinesArrived())

    def _put(self, line: str) -> None:
        if self.folds and not self.search:
            add_folded(self._rows, line)
        else:
            self._rows.append(as_row(line))

    def _refold(self) -> None:
        """Make the rows anew: a search looks into every line, folded or not."""
        followed = self._top is None
        self._rows, self._hit = [], None
        for line in self.lines:
            self._put(line)
        last = max(len(self._rows) - max(self.size.height - 2, 1), 0)
        self._top = None if followed else min(self._top or 0, last)

    def _seek(self, places: range) -> None:
        """Go to the first of these rows with the searched text, and put it into the middle of the panel."""
        needle = self.search.lower()
        found = next((i for i in places if needle in self._rows[i].text.lower()), None) if needle else None
        if found is None:
            return
        self._hit = found
        room = max(self.size.height - 2, 1)
        self._top = max(min(found - room // 2, len(self._rows) - room), 0)
        at, width = self._rows[found].text.lower().find(needle), max(self.size.width - 4, 1)
        if not self._left <= at <= self._left + width - len(needle):
            self._left = max(at - width // 2, 0) if at + len(needle) > width else 0

    def _styled(self, row: LogRow, width: int, *, here: bool) -> Line:
        if row.folded:
            told = styled(row.shown(), Style.WARN if row.odd else Style.DIM)
            return clip(styled(" " * (TIME + 2)) + told, width)
        if self.folds and not self.search:
            return clip(log_line(row.text, self._left), width)
        seen, style = row.text[self._left :], level_style(row.text)
        if not self.search:
            return clip(styled(seen, style), width)
        out: list[Span] = []
        end = 0
        for found in re.finditer(re.escape(self.search), seen, re.IGNORECASE):
            first, last = found.span()
            out += [*styled(seen[end:first], style), Span(seen[first:last], Style.HIT, lit=here)]
            end = last
        return clip((*out, *styled(seen[end:], style)), width)

    def _foot(self) -> EdgeText:
        search = EMPTY
        if self.search:
            found = sum(self.search.lower() in line.lower() for line in self.lines)
            search = styled(f"“{self.search}” {counted(found, 'line')}, n next N previous", Style.DIM)
        over = styled(self._ended, Style.DIM) if self._ended and self.lines else EMPTY
        hidden = sum(row.lines for row in self._rows if row.folded)
        folded = styled(f"{hidden} access lines folded; o shows all as written", Style.DIM) if hidden else EMPTY
        return EdgeText(join([search, over, folded], styled(" · ", Style.DIM)))
