"""The search field: one row above the footer."""

from __future__ import annotations

from textual import events
from textual.widgets import Input

from sparkdash.tui.widgets.panel import SearchChanged


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
