"""Dialogs: a question that names what it stops, and something to read.

Owns: their frames and keys. Must not know what is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen

from sparkdash.tui.ink import EMPTY, EdgeText, Ink, Line, LinesForWidth, clip, frame, inked, join, length
from sparkdash.tui.mirror import View
from sparkdash.tui.widgets.panel import AS_TALL_AS_NEEDED, Panel

PAGE, ALL = 10, 100_000
"""Lines."""
WIDEST, LEAST = 72, 44
"""Cells of prose, which is read badly where it is wider, and of the smallest frame."""


class DialogText(Panel):
    """What is told, in a frame, as wide as it needs."""

    def __init__(self, title: str, told: LinesForWidth, keys: Sequence[tuple[str, str]]) -> None:
        super().__init__()
        self._title = title
        self._told = told
        self._keys = keys
        self._top = 0

    def wanted(self, width: int) -> int:
        """How wide it would be, of at most `width` cells."""
        lines = self._told(min(width - 4, WIDEST))
        longest = max(length(line) for line in (*lines, inked(f"{self._title}    ")))
        return min(max(longest + 4, LEAST), width)

    def draw(self, view: View, width: int, height: int) -> list[Line]:  # noqa: ARG002 - the words are given
        """See Panel."""
        lines = self._told(min(width - 4, WIDEST))
        top, room = 0, len(lines)
        if height != AS_TALL_AS_NEEDED:  # to be measured must not move the words
            room = height - 2
            top = self._top = max(min(self._top, len(lines) - room), 0)
        shown = [clip(line, width - 4) for line in lines[top : top + room]]
        far = inked("j k scroll", Ink.DIM) if len(lines) > room else EMPTY
        keys = join([inked(key, Ink.STRONG) + inked(f" {word}", Ink.DIM) for key, word in self._keys], inked("   "))
        return frame(shown, width, EdgeText(inked(self._title, Ink.STRONG), far), EdgeText(keys))

    def scroll(self, by: int) -> None:
        """Move the words."""
        self._top = max(self._top + by, 0)
        self.redraw()


class Dialog(ModalScreen[bool]):
    """Over the page. True is only ever given where `yes` names what it does."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,n,q", "answer(False)", "leave", show=False),
        Binding("enter", "enter", "yes", show=False),
        Binding("y", "yes", "yes", show=False),
        Binding("j,down", "scroll_words(1)", "down", show=False),
        Binding("k,up", "scroll_words(-1)", "up", show=False),
        Binding("pagedown,space", f"scroll_words({PAGE})", "a page down", show=False),
        Binding("pageup", f"scroll_words(-{PAGE})", "a page up", show=False),
        Binding("end,G", f"scroll_words({ALL})", "to the end", show=False),
        Binding("home,g", f"scroll_words(-{ALL})", "to the beginning", show=False),
    ]

    def __init__(self, title: str, told: LinesForWidth, *, yes: str | None = None, again: str | None = None) -> None:
        """`yes`: the word for going ahead; None: there is nothing to decide. `again`: a key that also goes ahead."""
        super().__init__()
        self._yes = yes
        self._again = again
        both = f"⏎ {again}" if again else "⏎"
        keys = [(both, yes), ("esc", "leave it")] if yes else [("esc", "close")]
        self._words = DialogText(title, told, keys)

    def compose(self) -> ComposeResult:
        """See Textual."""
        yield self._words

    def on_mount(self) -> None:
        """As wide as the longest line, as far as the terminal goes."""
        self._words.styles.width = self._words.wanted(self.app.size.width)

    def on_resize(self) -> None:
        """See on_mount."""
        self.on_mount()

    def show(self, view: View) -> None:
        """A dialog keeps its words."""

    def on_key(self, event: events.Key) -> None:
        """The key that asked answers too, so that two strokes of it do the whole."""
        if self._again and event.character == self._again:
            event.stop()
            self.action_yes()

    def on_click(self, event: events.Click) -> None:
        """A click beside the dialog leaves it."""
        if event.widget is self:
            self.dismiss(False)

    def action_answer(self, yes: bool) -> None:
        """Leave."""
        self.dismiss(yes)

    def action_enter(self) -> None:
        """Go ahead, or close what is only to be read."""
        self.dismiss(self._yes is not None)

    def action_yes(self) -> None:
        """Go ahead."""
        if self._yes is not None:
            self.dismiss(True)

    def action_scroll_words(self, by: int) -> None:
        """Move the words."""
        self._words.scroll(by)
