"""Panel of an engine's log, with pause and search.

Owns: the lines kept here, the scroll position, and the reading task. Must not know: where logs come from.
Rule: pausing stops the display, not the reading; a hidden log is not read.
"""

from __future__ import annotations

from collections import deque
from typing import Any, ClassVar

from textual import events
from textual.binding import Binding, BindingType

from sparkdash.domain.engine import Engine
from sparkdash.errors import SparkdashError
from sparkdash.natural import natural
from sparkdash.tui.ink import EMPTY, EdgeText, Ink, Line, Span, clip, frame, inked, join, strip_controls
from sparkdash.tui.messages import LinesArrived
from sparkdash.tui.mirror import LinkState, View
from sparkdash.tui.widgets.panel import Panel
from sparkdash.units import counted

KEPT = 5000
"""Lines kept; a load writes a few hundred."""
SIDE = 16
"""Horizontal scroll step in cells."""


class LogPanel(Panel, can_focus=True):
    """Framed log of the chosen engine, else of the engine on the card."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down", "move(1)", "down", show=False),
        Binding("k,up", "move(-1)", "up", show=False),
        Binding("pagedown,ctrl+d", "page(1)", "page down", show=False),
        Binding("pageup,ctrl+u", "page(-1)", "page up", show=False),
        Binding("g,home", "first", "first", show=False),
        Binding("G,end", "last", "follow", show=False),
        Binding("right,l", f"side({SIDE})", "right", show=False),
        Binding("left,h", f"side(-{SIDE})", "left", show=False),
        Binding("space", "pause", "pause", show=False),
        Binding("n", "next(1)", "next found", show=False),
        Binding("N", "next(-1)", "found before", show=False),
        Binding("tab,right_square_bracket", "engine(1)", "next engine", show=False),
        Binding("left_square_bracket", "engine(-1)", "engine before", show=False),
    ]

    def __init__(self, **rest: Any) -> None:
        super().__init__(**rest)
        self.lines: deque[str] = deque(maxlen=KEPT)
        self.search = ""
        self.chosen: str | None = None
        self._source: tuple[str, str | None] | None = None
        """Profile and container of the log that is read; None when none is."""
        self._whose = "no engine"
        self._top: int | None = None
        """First visible line; None follows the end."""
        self._left = 0
        self._ended: str | None = None
        self._was_linked = True

    def show(self, view: View) -> None:
        """Draw the view; read another log when the engine to show changed."""
        back = view.link is LinkState.LIVE and not self._was_linked
        self._was_linked = view.link is LinkState.LIVE
        if back and self._ended:  # it ended with the link, and the engine may go on
            self._source = None
        if self.size.width:
            self._turn_to(self._wanted_source(view))
        super().show(view)

    def draw(self, view: View, width: int, height: int) -> list[Line]:  # noqa: ARG002 - the lines are the panel's own
        """Return the framed lines."""
        room = max(height - 2, 0)
        begin = max(len(self.lines) - room, 0) if self._top is None else self._top
        shown = list(self.lines)[begin : begin + room]
        body = [self._inked(line, width - 4) for line in shown] or [inked(self._silence(), Ink.DIM)]
        body += [EMPTY] * (room - len(body))
        return frame(
            body, width, EdgeText(inked("log ") + inked(self._whose, Ink.STRONG), self._mode(begin, room)), self._foot()
        )

    def find(self, text: str) -> None:
        """Highlight `text` and scroll to its last occurrence; "" ends the search."""
        self.search = text
        if text:
            self._seek(range(len(self.lines) - 1, -1, -1))
        self.redraw()

    def action_move(self, by: int) -> None:
        """Scroll by `by` lines; scrolling up stops following."""
        room = self.size.height - 2
        last = max(len(self.lines) - room, 0)
        top = (last if self._top is None else self._top) + by
        self._top = None if top >= last else max(top, 0)
        self.redraw()

    def action_page(self, by: int) -> None:
        """Scroll by a page."""
        self.action_move(by * max(self.size.height - 3, 1))

    def action_first(self) -> None:
        """Scroll to the oldest line."""
        self._top = 0
        self.redraw()

    def action_last(self) -> None:
        """Scroll to the newest line and follow."""
        self._top = None
        self.redraw()

    def action_side(self, by: int) -> None:
        """Scroll sideways in long lines."""
        self._left = max(self._left + by, 0)
        self.redraw()

    def action_pause(self) -> None:
        """Hold the display, or follow again."""
        self._top = max(len(self.lines) - (self.size.height - 2), 0) if self._top is None else None
        self.redraw()

    def action_next(self, way: int) -> None:
        """Scroll to the next or previous occurrence of the search."""
        at = self._top if self._top is not None else len(self.lines)
        self._seek(range(at + 1, len(self.lines)) if way > 0 else range(at - 1, -1, -1))
        self.redraw()

    def action_engine(self, way: int) -> None:
        """Show the log of the next or previous engine."""
        snapshot = self.services.view.snapshot
        names = sorted(snapshot.engines, key=natural) if snapshot else []
        if names:
            at = names.index(self._whose) if self._whose in names else -way
            self.chosen = names[(at + way) % len(names)]
            self.redraw()

    def on_mouse_scroll_down(self, _event: events.MouseScrollDown) -> None:
        """Scroll down."""
        self.action_move(3)

    def on_mouse_scroll_up(self, _event: events.MouseScrollUp) -> None:
        """Scroll up."""
        self.action_move(-3)

    def on_hide(self, _event: events.Hide) -> None:
        """Stop reading: a hidden log is not read."""
        self.stop_reading()

    def stop_reading(self) -> None:
        """Stop reading; the next `show` begins anew."""
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
        self._top, self._left, self._ended = None, 0, None
        self.run_worker(self._read(source[0]), group="log", exclusive=True)

    async def _read(self, profile: str) -> None:
        try:
            async for line in self.services.link.follow_log(profile):
                self._add(strip_controls(line))
        except SparkdashError as error:
            self._ended = error.text()
        else:
            self._ended = "end of the log"
        self.post_message(LinesArrived())

    def _add(self, line: str) -> None:
        if len(self.lines) == KEPT and self._top:
            self._top -= 1
        self.lines.append(line)
        self.post_message(LinesArrived())

    def _seek(self, places: range) -> None:
        needle = self.search.lower()
        lines = list(self.lines)
        found = next((i for i in places if needle in lines[i].lower()), None) if needle else None
        if found is not None:
            self._top = found

    def _inked(self, line: str, width: int) -> Line:
        seen = line[self._left :]
        ink = _level(line)
        at = seen.lower().find(self.search.lower()) if self.search else -1
        if at < 0:
            return clip(inked(seen, ink), width)
        end = at + len(self.search)
        return clip((*inked(seen[:at], ink), Span(seen[at:end], Ink.STRONG, lit=True), *inked(seen[end:], ink)), width)

    def _silence(self) -> str:
        return self._ended or ("The log is empty." if self._source else "No engine is running, so there is no log.")

    def _mode(self, begin: int, room: int) -> Line:
        if self._top is None:
            return inked("following", Ink.GOOD)
        return inked(f"held at {begin + 1}-{min(begin + room, len(self.lines))} of {len(self.lines)}", Ink.WARN)

    def _foot(self) -> EdgeText:
        found = sum(self.search.lower() in line.lower() for line in self.lines) if self.search else 0
        search = (
            inked(f"“{self.search}” {counted(found, 'line')}, n next N previous", Ink.DIM) if self.search else EMPTY
        )
        over = inked(self._ended, Ink.DIM) if self._ended and self.lines else EMPTY
        return EdgeText(join([search, over], inked(" · ", Ink.DIM)))


def _level(line: str) -> Ink:
    head = line[:60]
    if "ERROR" in head or "Error" in head or "CRITICAL" in head:
        return Ink.BAD
    return Ink.WARN if "WARN" in head else Ink.PLAIN
