"""Ways to the screens that open above a page: the settings, the start of an A/B run.

Owns: what must be known before each opens. Must not know: what they show. Rule: a screen is imported when it opens, as
the dashboard's start is short.
"""

from __future__ import annotations

from typing import Any, Protocol

from textual.screen import Screen

from sparkdash.tui.mirror import View


class ScreenHost(Protocol):
    """The app, as far as these ways need it."""

    view: View

    @property
    def screen(self) -> Screen[Any]:
        """The visible screen."""
        ...

    def push_screen(self, screen: Any, callback: Any = None) -> Any:
        """Open a screen above the others; `callback` gets its result."""
        ...

    def say(self, text: str, *, bad: bool = False) -> None:
        """Show a short answer on the notice row."""
        ...

    def action_page(self, page: str) -> None:
        """Open the named page."""
        ...


def open_settings(app: ScreenHost) -> None:
    """Show every setting, once."""
    from sparkdash.tui.screens.settings import SettingsPage

    if not isinstance(app.screen, SettingsPage):
        app.push_screen(SettingsPage())


def open_run_start(app: ScreenHost) -> None:
    """Plan an A/B run of the marked profiles; after its begin show the A/B page."""
    from sparkdash.tui.screens.run_start import RunStart

    snapshot = app.view.snapshot
    if snapshot is None or snapshot.toggle_a is None or snapshot.toggle_b is None:
        app.say("Mark two profiles first: page 2, keys a and b.")
        return

    def begun(began: bool | None) -> None:
        if began:
            app.say("The run begins; this page shows where it is, e ends it.")
            app.action_page("compare")

    app.push_screen(RunStart(snapshot.toggle_a, snapshot.toggle_b), begun)
