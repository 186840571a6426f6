"""Page: what every page has: the title bar, the notice row, the find field and the footer.

Owns: that layout, and passing a View to every panel. Must not know the daemon.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widget import Widget

from sparkdash.tui.messages import SearchChanged
from sparkdash.tui.mirror import View
from sparkdash.tui.widgets.find import SearchField
from sparkdash.tui.widgets.header import Footer, NoticeRow, TitleBar
from sparkdash.tui.widgets.log import LogPanel
from sparkdash.tui.widgets.panel import AppServices, Panel
from sparkdash.tui.widgets.table import Table


class Page(Screen[None]):
    """One page; its main table or log has the focus."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "find", "find", show=False),
        Binding("escape", "show_all", "show all", show=False),
        Binding("y", "copy", "copy the row", show=False),
    ]
    AUTO_FOCUS = "Table, LogPanel"

    title_key = ""
    """Its name in `header.PAGES`."""
    keys = "/ find  ? help"
    """What the footer says."""

    def body(self) -> Iterable[Widget]:
        """The panels between title bar and notice row."""
        raise NotImplementedError

    def compose(self) -> ComposeResult:
        """See Textual."""
        yield TitleBar()
        yield from self.body()
        yield NoticeRow()
        yield SearchField()
        yield Footer(self.title_key, self.keys)

    @property
    def services(self) -> AppServices:
        """The app, by what a page may use of it."""
        return self.query_one(TitleBar).services

    def show(self, view: View) -> None:
        """Give every panel this moment."""
        for panel in self.query(Panel):
            panel.show(view)

    def on_screen_resume(self) -> None:
        """Catch up with what happened while another page was seen."""
        self.show(self.services.view)

    def on_screen_suspend(self) -> None:
        """A log that is not seen is not read."""
        for log in self.query(LogPanel):
            log.rest()

    def action_find(self) -> None:
        """Look for something in the page's table or log."""
        self.query_one(SearchField).open()

    def action_show_all(self) -> None:
        """End the search; where there is none, see the top of the list again."""
        for table in self.query(Table):
            if not table.filter:
                table.rest()
        self.query_one(SearchField).action_drop()

    def action_copy(self) -> None:
        """Copy the row under the cursor."""
        focused = self.focused
        row = focused.current if isinstance(focused, Table) else None
        if row is not None and row.copy:
            self.app.copy_to_clipboard(row.copy)
            self.services.say(f"copied: {row.copy}")
        else:
            self.services.say("nothing to copy in this row" if row else "no row to copy: j and k walk to one")

    def on_search_changed(self, message: SearchChanged) -> None:
        """Narrow what has the page's focus."""
        for table in self.query(Table):
            table.narrow(message.text)
        for log in self.query(LogPanel):
            log.find(message.text)
        if message.left:
            if message.text and self.query(Table):  # a log says by itself how many lines hold it
                self.services.say(f"only what holds “{message.text}”; esc shows all")
            self.set_focus(self.query(self.AUTO_FOCUS or "*").first())
