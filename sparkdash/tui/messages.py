"""Messages from widgets to the page and the app: facts in the past tense.

Owns: the messages. Must not know: who listens.
"""

from __future__ import annotations

from textual.message import Message


class RowMoved(Message):
    """The cursor of a table moved to another row; `key` is None when there is none."""

    def __init__(self, key: str | None) -> None:
        super().__init__()
        self.key = key

    def can_replace(self, message: Message) -> bool:
        """Keep only the latest position."""
        return isinstance(message, RowMoved)


class RowChosen(Message):
    """A row was chosen with Enter or a double click."""

    def __init__(self, key: str) -> None:
        super().__init__()
        self.key = key


class LinesArrived(Message):
    """Lines arrived in a log; the next paint shows them."""

    def can_replace(self, message: Message) -> bool:
        """Merge with an earlier message: one paint shows all lines."""
        return isinstance(message, LinesArrived)


class PageAsked(Message):
    """A page's name in the footer was clicked."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.page = page


class SearchChanged(Message):
    """The text of the search field changed, or the field was left."""

    def __init__(self, text: str, *, left: bool = False) -> None:
        super().__init__()
        self.text = text
        self.left = left


class EngineAsked(Message):
    """An engine was clicked, to become the large one."""

    def __init__(self, profile: str) -> None:
        super().__init__()
        self.profile = profile


class KeyAsked(Message):
    """The hint of a key was clicked."""

    def __init__(self, key: str) -> None:
        super().__init__()
        self.key = key
