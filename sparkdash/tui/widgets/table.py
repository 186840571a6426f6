"""Table: rows with a cursor, a filter and a scroll place, drawn as a Panel.

Owns: which rows are seen and which is under the cursor. Must not know what the rows mean.
Rule: the cursor stays on its row (by key) while rows come and go around it; a live list is seen from its top until somebody
walks in it.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

from textual import events
from textual.binding import Binding, BindingType

from sparkdash.tui.ink import EMPTY, EdgeText, Ink, Line, clip, frame, highlighted, inked, justify, length, pad
from sparkdash.tui.ink import plain_text as plain
from sparkdash.tui.messages import RowChosen, RowMoved
from sparkdash.tui.mirror import View
from sparkdash.tui.widgets.panel import Panel

PAGE = 10
WHEEL = 3


class TableRow(NamedTuple):
    """One row. `copy` is what `y` puts on the clipboard. The filter looks in `words` too, or without them in `copy`."""

    key: str
    line: Line
    copy: str = ""
    words: str | None = None


class Table(Panel, can_focus=True):
    """A list to walk in. `framed` puts it in a frame with `title`."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down", "move(1)", "down", show=False),
        Binding("k,up", "move(-1)", "up", show=False),
        Binding("pagedown,ctrl+d", f"move({PAGE})", "page down", show=False),
        Binding("pageup,ctrl+u", f"move(-{PAGE})", "page up", show=False),
        Binding("g,home", "first", "first", show=False),
        Binding("G,end", "last", "last", show=False),
        Binding("enter", "choose", "choose", show=False),
    ]

    title = ""
    live = False
    """Do rows come at its top, of which one sees the newest as long as nobody has walked?"""
    nothing = "nothing here"
    """What the empty table says."""

    def __init__(self, *, cursor: bool = True, **rest: Any) -> None:
        """`cursor`: begin on the first row; False: no row is marked until a key moves there."""
        super().__init__(**rest)
        self.cursor: str | None = None
        self.filter = ""
        self._follows = cursor
        self._walked = False
        self._offset = 0
        self._rows: list[TableRow] = []
        self._top = 0
        """Screen row of the first list row, for clicks."""

    def head(self, width: int) -> Line:
        """The column names."""
        raise NotImplementedError

    def rows(self, view: View, width: int) -> list[TableRow]:
        """Every row, before the filter."""
        raise NotImplementedError

    @property
    def framed(self) -> bool:
        """In a frame of its own, where several stand side by side."""
        return False

    @property
    def current(self) -> TableRow | None:
        """The row under the cursor."""
        return next((row for row in self._rows if row.key == self.cursor), None)

    def show(self, view: View) -> None:
        """See Panel; also tells when the row under the cursor has gone or a first one has come."""
        before = self.cursor
        super().show(view)
        if self.cursor != before:
            self.post_message(RowMoved(self.cursor))

    def draw(self, view: View, width: int, height: int) -> list[Line]:
        """See Panel."""
        inner = width - 4 if self.framed else width
        self._rows = [row for row in self.rows(view, inner) if _matches(row, self.filter)]
        self._settle()
        room = height - 1 - (2 if self.framed else 0)
        self._scroll(room)
        shown = [self._inked(row, inner) for row in self._rows[self._offset : self._offset + room]]
        head, place = clip(self.head(inner), inner), self._place(room)
        self._top = 2 if self.framed else 1
        if not self.framed:
            return [_beside(head, place, inner), *(shown or self._empty(view, inner))][:height]
        body = [head, *(shown or self._empty(view, inner))]
        body += [EMPTY] * (height - 2 - len(body))
        return frame(body, width, EdgeText(inked(self.title)), EdgeText(EMPTY, place))

    def seek(self, key: str) -> None:
        """Put the cursor on that row, if it is there."""
        self.cursor, self._walked = key, True
        self.redraw()
        self.post_message(RowMoved(self.cursor))

    def rest(self) -> None:
        """See the top again, as before somebody walked."""
        self._walked, self._offset = False, 0
        self.redraw()

    def narrow(self, text: str) -> None:
        """Show only the rows that hold `text`; "" shows all."""
        self.filter = text
        self._walked = self._walked or bool(text and self._follows)
        self.redraw()

    def action_move(self, by: int) -> None:
        """Walk `by` rows."""
        if not self._rows:
            return
        at = self._index()
        self._put(at + by if at is not None else 0 if by > 0 else len(self._rows) - 1)

    def action_first(self) -> None:
        """To the first row."""
        self._put(0)

    def action_last(self) -> None:
        """To the last row."""
        self._put(len(self._rows) - 1)

    def action_choose(self) -> None:
        """Choose the row under the cursor."""
        if row := self.current:
            self.post_message(RowChosen(row.key))

    def on_click(self, event: events.Click) -> None:
        """Put the cursor there; the second click of two chooses."""
        index = event.y - self._top + self._offset
        if event.y >= self._top and index < len(self._rows):
            self._put(index)
            if event.chain == 2:
                self.action_choose()

    def on_mouse_scroll_down(self, _event: events.MouseScrollDown) -> None:
        """Walk down."""
        self.action_move(WHEEL)

    def on_mouse_scroll_up(self, _event: events.MouseScrollUp) -> None:
        """Walk up."""
        self.action_move(-WHEEL)

    def _put(self, index: int) -> None:
        if self._rows:
            self.seek(self._rows[max(0, min(index, len(self._rows) - 1))].key)

    def _index(self) -> int | None:
        return next((i for i, row in enumerate(self._rows) if row.key == self.cursor), None)

    def _settle(self) -> None:
        """A cursor whose row has gone stands on the first one, or nowhere where the table began without one; so does one in a
        live list that nobody has moved."""
        if (self.live and not self._walked) or self._index() is None:
            self.cursor = self._rows[0].key if self._rows and self._follows else None

    def _scroll(self, room: int) -> None:
        at = self._index() or 0
        lowest = max(len(self._rows) - room, 0)
        self._offset = min(max(min(self._offset, at), at - room + 1, 0), lowest)

    def _inked(self, row: TableRow, width: int) -> Line:
        return highlighted(pad(row.line, width)) if row.key == self.cursor else clip(row.line, width)

    def _empty(self, view: View, width: int) -> list[Line]:  # noqa: ARG002 - for tables whose advice depends on the view
        text = f"nothing holds “{self.filter}”; esc shows all" if self.filter else self.nothing
        return [clip(inked(f" {text}", Ink.DIM), width)]

    def _place(self, room: int) -> Line:
        if len(self._rows) <= room:
            return EMPTY
        return inked(f"{self._offset + 1}-{min(self._offset + room, len(self._rows))}/{len(self._rows)}", Ink.DIM)


def _beside(head: Line, place: Line, width: int) -> Line:
    """The column names, and at their right the place in the list, where there is room."""
    far = place + inked(" ")  # as far from the edge as the title bar's clock
    return justify(head, far, width) if place and length(head) + length(far) + 1 <= width else head


def _matches(row: TableRow, text: str) -> bool:
    return text.lower() in f"{plain(row.line)} {row.copy if row.words is None else row.words}".lower()
