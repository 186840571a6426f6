"""What widgets tell the page and the app: facts in the past tense.

Owns: the messages. Must not know who listens.
"""

from __future__ import annotations

from textual.message import Message


class RowMoved(Message):
    """The cursor of a table stands on another row; `key` is None when there is none."""

    def __init__(self, key: str | None) -> None:
        super().__init__()
        self.key = key

    def can_replace(self, message: Message) -> bool:
        """Only the latest place counts."""
        return isinstance(message, RowMoved)


class RowChosen(Message):
    """Enter, or a double click, on a row."""

    def __init__(self, key: str) -> None:
        super().__init__()
        self.key = key


class LinesArrived(Message):
    """A log grew; the next paint shows it."""

    def can_replace(self, message: Message) -> bool:
        """One paint shows them all."""
        return isinstance(message, LinesArrived)


class PageAsked(Message):
    """A page's name in the footer was clicked."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.page = page


class SearchChanged(Message):
    """The text of the find field changed, or it was left; `text` is what is looked for now."""

    def __init__(self, text: str, *, left: bool = False) -> None:
        super().__init__()
        self.text = text
        self.left = left
