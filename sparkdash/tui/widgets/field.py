"""Text field that takes keys in the order in which they came.

Owns: that order. Must not know: what is typed. Rule: keys of a binding are carried out where they come. Textual carries
them out only after the letters behind them, so that "backspace 8 enter" in one read would write the old value.
"""

from __future__ import annotations

from textual import events
from textual.widgets import Input


class Field(Input):
    """Input whose keys of editing and of submitting keep their place among the letters."""

    def takes(self, event: events.Key) -> bool:
        """Whether this key is typed here, or edits or submits the text."""
        return event.is_printable or event.key in self._bindings.key_to_bindings

    async def _on_key(self, event: events.Key) -> None:
        """Type the key, or do at once what it is bound to."""
        found = self._bindings.key_to_bindings.get(event.key)
        if not found:
            await super()._on_key(event)
            return
        event.stop()
        event.prevent_default()
        await self.run_action(found[0].action)
