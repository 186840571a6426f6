"""The find field: one row above the footer, shown while something is looked for.

Owns: the field. Must not know what is looked through.
"""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widgets import Input

from sparkdash.tui.messages import SearchChanged


class SearchField(Input):
    """Enter leaves it and keeps what was found, for as long as it is seen; escape leaves it and shows all again."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "drop", "show all", show=False)]

    def __init__(self) -> None:
        super().__init__(placeholder="find", compact=True)
        self.display = False
        self.cursor_blink = False

    def open(self) -> None:
        """Show and take the keys."""
        self.display = True
        self.focus()

    def action_drop(self) -> None:
        """Forget what was looked for."""
        self.value = ""
        self.display = False
        self.post_message(SearchChanged("", left=True))

    def on_input_changed(self, event: Input.Changed) -> None:
        """Narrow with every letter."""
        event.stop()
        self.post_message(SearchChanged(event.value))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Keep it and go back."""
        event.stop()
        self.display = bool(event.value)
        self.post_message(SearchChanged(event.value, left=True))
