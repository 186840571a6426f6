"""The page of an engine's log."""

from __future__ import annotations

from collections.abc import Iterable

from textual.widget import Widget

from sparkdash.tui.screens.page import Page
from sparkdash.tui.widgets.log import LogPanel


class LogsPage(Page):
    """Page of one engine's log."""

    title_key = "logs"
    keys = "space hold  h l sideways  / find  tab engine  ? help"

    def body(self) -> Iterable[Widget]:
        """Yield the log."""
        yield LogPanel()
