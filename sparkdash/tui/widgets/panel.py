"""Base of all panels: a widget that draws styled lines and repaints only the rows that differ.

Rule: `draw` depends only on the view, the size and the panel's own fields; it is called at most once per paint.
"""

from dataclasses import dataclass
from functools import cache
from itertools import takewhile, zip_longest
from typing import ClassVar, cast

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style as RichStyle
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Input

from sparkdash.tui import theme
from sparkdash.tui.lines.charts import BLOCKS
from sparkdash.tui.mirror import View
from sparkdash.tui.orders import AppServices
from sparkdash.tui.text import EMPTY, Line, length


class Field(Input):
    """Input whose keys of editing and of submitting keep their place among the letters."""

    def takes(self, event: events.Key) -> bool:
        """Whether this key is typed here, or edits or submits the text."""
        return event.is_printable or event.key in self._bindings.key_to_bindings

    async def _on_key(self, event: events.Key) -> None:
        found = self._bindings.key_to_bindings.get(event.key)
        if not found:
            await super()._on_key(event)
            return
        event.stop()
        event.prevent_default()
        await self.run_action(found[0].action)


class SearchField(Field):
    """Search field. Enter leaves it and keeps the search; Escape ends the search."""

    def __init__(self) -> None:
        super().__init__(placeholder="find", compact=True)
        self.display = False
        self.cursor_blink = False

    def open(self) -> None:
        self.display = True
        self.screen.set_focus(self)  # `focus` would wait until the keys behind this one were carried out

    async def _on_key(self, event: events.Key) -> None:
        """Type the key; Escape ends the search at once, so that keys which came with it are commands.

        A binding would run only after this widget has typed the keys behind Escape.
        """
        if self.display and event.key != "escape":
            await super()._on_key(event)
            return
        event.stop()
        event.prevent_default()
        if self.display:
            self.action_drop()
        else:
            self.app.simulate_key(event.key)

    def action_drop(self) -> None:
        self.value = ""
        self.display = False
        self.screen.set_focus(None)
        self.post_message(SearchChanged("", left=True))

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self.post_message(SearchChanged(event.value))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.display = bool(event.value)
        self.post_message(SearchChanged(event.value, left=True))


@dataclass
class RowMoved(Message):
    """The cursor of a table moved to another row; `key` is None when there is none."""

    key: str | None

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, RowMoved)


@dataclass
class RowChosen(Message):
    """A row was chosen with Enter or a double click."""

    key: str


class LinesArrived(Message):
    """Lines arrived in a log; the next paint shows them."""

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, LinesArrived)


@dataclass
class PageAsked(Message):
    """A page's name in the footer was clicked."""

    page: str


@dataclass
class SearchChanged(Message):
    """The text of the search field changed, or the field was left."""

    text: str
    left: bool = False


@dataclass
class EngineAsked(Message):
    """An engine was clicked, to become the large one."""

    profile: str


AS_TALL_AS_NEEDED = 0
"""Height that `draw` gets when a panel with `height: auto` is measured."""


class Panel(Widget):
    """Widget that shows the lines of `draw(view, width, height)`."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: list[Line] = []
        self._wanted = -1

    def draw(self, view: View, width: int, height: int) -> list[Line]:
        """Return the panel's lines, at most `height` unless that is AS_TALL_AS_NEEDED."""
        raise NotImplementedError

    @property
    def services(self) -> AppServices:
        return cast("AppServices", self.app)

    def show(self, view: View) -> None:
        width, height = self.outer_size  # `size`, as no panel has a border; that one takes Textual long to find
        if not width or not self.is_attached:
            return
        is_measured = self.styles.auto_dimensions and self._wanted >= 0
        if is_measured and len(self.draw(view, width, AS_TALL_AS_NEEDED)) != self._wanted:
            self.refresh(layout=True)
        lines = self.draw(view, width, height)
        before, self._lines = self._lines, lines
        rows = enumerate(zip_longest(before, lines, fillvalue=EMPTY))
        changed = [found for y, (old, new) in rows if old != new and (found := changed_cells(old, new, y, width))]
        if changed:
            self.refresh(*changed)

    def redraw(self) -> None:
        self.show(self.services.view)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:  # noqa: ARG002 - Textual's own
        self._wanted = len(self.draw(self.services.view, width, AS_TALL_AS_NEEDED))
        return self._wanted

    def render_line(self, y: int) -> Strip:
        line = self._lines[y] if y < len(self._lines) else EMPTY
        if not self.services.braille:
            line = tuple(span._replace(text=span.text.translate(BLOCKS)) for span in line)
        return Strip(line_segments(line, theme.styles_for(self.app.theme)))

    def on_resize(self, _event: events.Resize) -> None:
        self.redraw()


WHEEL = 3
"""Rows that the mouse's wheel moves."""


class Walked(Panel, can_focus=True):
    """Panel of rows that keys and the wheel move through. While it has the keys its frame is lit, and names them."""

    keys: Line = EMPTY

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down", "move(1)", "down", system=True),
        Binding("k,up", "move(-1)", "up", system=True),
        Binding("pagedown,ctrl+d", "page(1)", "page down", system=True),
        Binding("pageup,ctrl+u", "page(-1)", "page up", system=True),
        Binding("g,home", "first", "first", system=True),
        Binding("G,end", "last", "last", system=True),
    ]

    def watch_has_focus(self, has_focus: bool) -> None:
        super().watch_has_focus(has_focus)
        self.redraw()

    def action_move(self, by: int) -> None:
        raise NotImplementedError

    def action_page(self, by: int) -> None:
        self.action_move(by * max(self.size.height - 3, 1))

    def on_mouse_scroll_down(self, _event: events.MouseScrollDown) -> None:
        self.action_move(WHEEL)

    def on_mouse_scroll_up(self, _event: events.MouseScrollUp) -> None:
        self.action_move(-WHEEL)


def changed_cells(before: Line, line: Line, y: int, width: int) -> Region | None:
    """Return the cells of row `y` between its unchanged beginning and end: the terminal is sent these alone."""
    if before == line:
        return None
    first = _same_cells(before, line, at_end=False)
    if length(before) != length(line):
        return Region(first, y, width - first, 1)
    return Region(first, y, max(length(line) - _same_cells(before, line, at_end=True) - first, 1), 1)


def _same_cells(before: Line, line: Line, *, at_end: bool) -> int:
    """Count the cells at one end that two lines have in common."""
    cells, way = 0, -1 if at_end else 1
    for old, new in zip(before[::way], line[::way], strict=False):
        if old == new:
            cells += cell_len(new.text)
            continue
        if old[1:] == new[1:]:
            pairs = zip(old.text[::way], new.text[::way], strict=False)
            cells += cell_len("".join([a for a, _ in takewhile(lambda pair: pair[0] == pair[1], pairs)]))
        break
    return cells


def line_segments(line: Line, looks: theme.Looks) -> list[Segment]:
    """Make the segments of a line, as few as look right: each costs Textual time, and the terminal 40 bytes.

    Blanks join the text before them where only its colour would differ.
    """
    made: list[Segment] = []
    texts: list[str] = []
    last: RichStyle | None = None
    for text, style, lit in line:
        look = looks[style, lit]
        if last is None or not (look is last or (text.isspace() and _ground(look) == _ground(last))):
            if last is not None:
                made.append(Segment("".join(texts), last))
            last, texts = look, []
        texts.append(text)
    return [*made, Segment("".join(texts), last)] if texts else made


@cache
def _ground(look: RichStyle) -> tuple[object, ...]:
    """Return what of a look shows where there is no text."""
    return look.bgcolor, look.underline, look.reverse
