"""Base of all tables: rows with a cursor, a filter and a scroll position.

Rule: the cursor stays on its row (by key) while rows come and go around it; a live list shows its top until the user
moves in it.
"""

import re
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import ClassVar, Generic, NamedTuple, TypeVar

from textual import events
from textual.binding import Binding, BindingType

from sparkdash.tui.mirror import View
from sparkdash.tui.text import (
    EMPTY,
    EdgeText,
    Line,
    Style,
    align_right,
    clip,
    frame,
    highlighted,
    justify,
    length,
    pad,
    styled,
    wrap,
)
from sparkdash.tui.text import plain_text as plain
from sparkdash.tui.widgets.panel import RowChosen, RowMoved, Walked
from sparkdash.units import DASH

T = TypeVar("T")
Text = str | Callable[[], str]


class TableRow:
    """Row of a table, whose texts are made when they are first read: of hundreds of rows a screen shows a few."""

    def __init__(
        self, key: str, line: Callable[[], Line], copy: Text = "", words: Text | None = None, *, stops: bool = True
    ) -> None:
        """Make a row. `y` copies `copy`; the filter searches `words` too, or `copy` where `words` is None.

        `stops`: whether the cursor stops there; a click chooses a row where it does not.
        """
        self.stops = stops
        self.key = key
        self._line = line
        self._copy = copy
        self._words = copy if words is None else words

    @cached_property
    def line(self) -> Line:
        return self._line()

    @cached_property
    def copy(self) -> str:
        return _made(self._copy)

    def contains(self, text: str) -> bool:
        return not text or text.lower() in f"{plain(self.line)} {_made(self._words)}".lower()


_WORD = re.compile(r"\S+")
_CELL = re.compile(r"\S+(?: (?:GiB|MiB|KiB|%))?")
_NUMBER = re.compile(r"(\d+(?:\.\d+)?) ?(GiB|MiB|KiB|ms|[smhdkMG])?")
_WORTH = {
    "ms": 1e-3, "m": 60.0, "h": 3600.0, "d": 86400.0, "k": 1e3, "M": 1e6, "G": 1e9, "MiB": 2.0**-10, "KiB": 2.0**-20,
}  # fmt: skip


THUMB = styled("▐", Style.FAINT)


class SortedBy(NamedTuple):
    """Order of rows by what they show below a heading."""

    heading: str
    falling: bool = True

    def ordered(self, rows: list[TableRow], head: str) -> list[TableRow]:
        """Sort figures by their worth, units counted, and text by the alphabet; rows without one stay at the end."""
        first, last = self._place(head)
        told = {row.key: _below(plain(row.line), first, last) for row in rows}
        rows = sorted(rows, key=lambda row: _worth(told[row.key]), reverse=self.falling)
        figures = any(map(_is_figure, told.values()))
        return sorted(rows, key=lambda row: not _is_figure(told[row.key]) if figures else told[row.key] == DASH)

    def _place(self, head: str) -> tuple[int, int]:
        """Return the cells of the heading: they move with the names; none in a terminal too narrow for the column."""
        return next((word.span() for word in _WORD.finditer(head) if word[0] == self.heading), (0, 0))

    def marked(self, head: str) -> str:
        """Put an arrow beside the heading, where a space is."""
        first, last = self._place(head)
        at = first - 1 if first and head[first - 1] == " " else last
        return f"{head[:at]}{'▾' if self.falling else '▴'}{head[at + 1 :]}"


def _below(line: str, first: int, last: int) -> str:
    return " ".join(found[0] for found in _CELL.finditer(line) if found.start() < last and found.end() > first)


def _is_figure(text: str) -> bool:
    return text.lstrip("~")[:1].isdigit() and ":" not in text


def _worth(text: str) -> tuple[float, str]:
    found = _NUMBER.findall(text) if _is_figure(text) else []
    return sum(float(figure) * _WORTH.get(unit, 1.0) for figure, unit in found), text


def _made(text: Text) -> str:
    return text if isinstance(text, str) else text()


class Column(NamedTuple, Generic[T]):
    """Column of figures; a narrow terminal omits the columns with the highest `gives_way` first."""

    name: str
    cells: int
    gives_way: int
    text: Callable[[T], str]


def fitting_columns(columns: Sequence[Column[T]], room: int) -> list[Column[T]]:
    """Return the columns that fit into `room` cells, at least one."""
    found = list(columns)
    while sum(one.cells for one in found) > room and len(found) > 1:
        found.remove(max(found, key=lambda one: one.gives_way))
    return found


def titles(columns: Sequence[Column[T]]) -> str:
    return "".join(f"{one.name:>{one.cells}}" for one in columns)


def figures(columns: Sequence[Column[T]], of: T, bad: str = "") -> Line:
    """Format the figures of a row; that of the column `bad` is red unless it is a dash."""
    line = EMPTY
    for column in columns:
        told = column.text(of)
        line += figure(told, column.cells, Style.BAD if column.name == bad else Style.PLAIN)
    return line


def figure(told: str, cells: int, style: Style = Style.PLAIN) -> Line:
    """Align a figure to the right; a dash is dim."""
    return align_right(styled(told, Style.DIM if told.strip() == DASH else style), cells)


class Table(Walked):
    """List with a cursor. `framed` puts it in a frame with `title`."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "choose", "open the row under the cursor")]

    title = ""
    live = False
    """Whether new rows come at the top, which stays visible until the user moves the cursor."""
    nothing = "nothing here"

    def __init__(self, *, beside: bool = False) -> None:
        """Make the table. `beside` other panels no row is marked until a key moves there."""
        super().__init__()
        self.beside = beside
        self.cursor: str | None = None
        self.filter = ""
        self._walked = False
        self._offset = 0
        self._rows: list[TableRow] = []
        self._top = 0
        """Screen row of the first table row, for clicks."""
        self.sorted_by: SortedBy | None = None
        """Set by a click on a heading."""

    def head(self, width: int) -> Line:
        raise NotImplementedError

    def rows(self, view: View, width: int) -> list[TableRow]:
        raise NotImplementedError

    @property
    def framed(self) -> bool:
        """Whether the table has a frame of its own, for panels side by side."""
        return False

    @property
    def current(self) -> TableRow | None:
        return next((row for row in self._rows if row.key == self.cursor), None)

    def show(self, view: View) -> None:
        before = self.cursor
        super().show(view)
        if self.cursor != before:
            self.post_message(RowMoved(self.cursor))

    def draw(self, view: View, width: int, height: int) -> list[Line]:
        edges = 2 if self.framed else 0
        inner, room = width - 2 * edges, height - 1 - edges
        self._take_rows(view, inner)
        self._scroll(room)
        bar = self._scrollbar(room)
        seen = enumerate(self._rows[self._offset : self._offset + room])
        shown = [self._beside_bar(row, inner) if at in bar else self._styled(row, inner) for at, row in seen]
        shown = shown or self._empty(view, inner)
        head, place = clip(self.head(inner), inner), self._place(room)
        head = styled(self.sorted_by.marked(plain(head)), Style.DIM) if self.sorted_by else head
        self._top = 1 + edges // 2
        if not edges:
            count = styled(f"n={self.count_text(len(self._rows))}", Style.DIM) if place else EMPTY
            return [_beside(head, (place, count), inner), *shown][:height]
        if room < 1:
            return []  # a part of a frame would look like a broken screen
        edge = EdgeText(styled(self.title), self.keys if self.has_focus else EMPTY)
        return frame([head, *shown], width, edge, EdgeText(EMPTY, place), height=height, lit=self.has_focus)

    def _take_rows(self, view: View, width: int) -> None:
        self._rows = [row for row in self.rows(view, width) if row.contains(self.filter)]
        if self.sorted_by:
            rows = [row for row in self._rows if row.stops]
            self._rows = self.sorted_by.ordered(rows, plain(self.head(width)))
        self._settle()

    def move_to(self, key: str) -> None:
        self.cursor, self._walked = key, True
        self.redraw()
        self.post_message(RowMoved(self.cursor))

    def scroll_to_top(self) -> None:
        self._walked, self._offset = False, 0
        self.redraw()

    def set_filter(self, text: str) -> None:
        """Show only rows that contain `text`; "" shows all."""
        self.filter = text
        self._walked = self._walked or bool(text and not self.beside)
        self.redraw()

    def action_move(self, by: int) -> None:
        if not self._rows:
            return
        at = self._index()
        self._put(at + by if at is not None else 0 if by > 0 else len(self._rows) - 1, 1 if by > 0 else -1)

    def action_first(self) -> None:
        self._put(0)

    def action_last(self) -> None:
        self._put(len(self._rows) - 1, -1)

    def action_choose(self) -> None:
        if row := self.current:
            self.post_message(RowChosen(row.key))

    def _scrollbar(self, room: int) -> range:
        """Return the screen rows of the scrollbar's thumb; none where every row is seen."""
        count = len(self._rows)
        if count <= room or room < 2:
            return range(0)
        size = max(room * room // count, 1)
        first = round(self._offset / (count - room) * (room - size))
        return range(first, first + size)

    def _beside_bar(self, row: TableRow, cells: int) -> Line:
        """Draw a row with the scrollbar's thumb, unless a figure needs the last cell."""
        if len(plain(row.line).rstrip()) >= cells:
            return self._styled(row, cells)
        return pad(self._styled(row, cells - 1), cells - 1) + THUMB

    def _sort_at(self, x: int) -> None:
        """Sort by the heading at a cell: falling, rising at the second click, as before at the third."""
        head = plain(self.head(self.size.width - (4 if self.framed else 0)))
        found = next((one[0] for one in _WORD.finditer(head) if one.start() <= x < one.end()), None)
        if found is None:
            return
        now = self.sorted_by
        if now is None or now.heading != found:
            self.sorted_by = SortedBy(found)
        else:
            self.sorted_by = now._replace(falling=False) if now.falling else None
        self.redraw()

    def on_click(self, event: events.Click) -> None:
        if event.y == self._top - 1:
            self._sort_at(event.x - (2 if self.framed else 0))
        index = event.y - self._top + self._offset
        if event.y >= self._top and index < len(self._rows):
            if not self._rows[index].stops:
                self.post_message(RowChosen(self._rows[index].key))
                return
            self._put(index)
            if event.chain == 2:
                self.action_choose()

    def _put(self, index: int, way: int = 1) -> None:
        """Move the cursor to a row, or to the next one that way where it may stop, else to the one before."""
        at = max(0, min(index, len(self._rows) - 1))
        for row in (*self._rows[at::way], *self._rows[at::-way]):
            if row.stops:
                self.move_to(row.key)
                return

    def _index(self) -> int | None:
        return next((i for i, row in enumerate(self._rows) if row.key == self.cursor), None)

    def _settle(self) -> None:
        """Move a cursor whose row has gone to the first row, or remove it where the table began without one.

        The cursor of a live list that nobody has moved stays on the first row too.
        """
        if (self.live and not self._walked) or self._index() is None:
            first = next((row.key for row in self._rows if row.stops), None)
            self.cursor = None if self.beside else first

    def _scroll(self, room: int) -> None:
        at = self._index() or 0
        lowest = max(len(self._rows) - room, 0)
        self._offset = min(max(min(self._offset, at), at - room + 1, 0), lowest)

    def _styled(self, row: TableRow, width: int) -> Line:
        return highlighted(pad(row.line, width)) if row.key == self.cursor else clip(row.line, width)

    def _empty(self, view: View, width: int) -> list[Line]:
        if view.snapshot is None:  # what there is, nobody has told yet
            return []
        text = f"no row contains “{self.filter}”; esc shows all" if self.filter else self.nothing
        return [styled(" ") + row for row in wrap(text, width - 1, Style.DIM)]

    def _place(self, room: int) -> Line:
        if len(self._rows) <= room:
            return EMPTY
        count = len(self._rows)
        return styled(f"{self._offset + 1}-{min(self._offset + room, count)}/{self.count_text(count)}", Style.DIM)

    def count_text(self, count: int) -> str:
        return f"{count}"


def _beside(head: Line, places: tuple[Line, ...], width: int) -> Line:
    """Format the column titles, with the first of the places in the list at their right that has room."""
    for place in places:
        far = place + styled(" ")  # as far from the edge as the title bar's clock
        if place and length(head) + length(far) + 1 <= width:
            return justify(head, far, width)
    return head
