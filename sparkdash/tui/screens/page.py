"""Base of all pages: title bar, notice row, search field and footer."""

from collections.abc import Iterable
from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widget import Widget

from sparkdash.tui.mirror import View
from sparkdash.tui.orders import AppServices
from sparkdash.tui.widgets.header import Footer, NoticeRow, TitleBar
from sparkdash.tui.widgets.log import LogPanel
from sparkdash.tui.widgets.panel import Panel, SearchChanged, SearchField
from sparkdash.tui.widgets.table import Table


class Page(Screen[None]):
    """Base of the pages; the main table or log has the focus."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "find", "find: show only rows with a text"),
        Binding("escape", "show_all", "show all", system=True),
        Binding("y", "copy", "copy the row"),
    ]
    AUTO_FOCUS = "Table, LogPanel"

    title_key = ""
    """Name of the page in `header.PAGES`."""
    keys = "/ find  ? help"

    _panels: tuple[Panel, ...] = ()
    """All panels, once they are mounted."""

    def __init__(self) -> None:
        super().__init__()
        # a new page has the styles of now; Textual would parse all of them three times before it believes that
        self._css_update_count = self.app._css_update_count

    def body(self) -> Iterable[Widget]:
        raise NotImplementedError

    def compose(self) -> ComposeResult:
        yield TitleBar()
        yield from self.body()
        yield NoticeRow(self.keys)
        yield SearchField()
        yield Footer(self.title_key, self.keys)

    @property
    def services(self) -> AppServices:
        return self.query_one(TitleBar).services

    def show(self, view: View) -> None:
        if self.is_mounted and not self._panels:
            self._panels = tuple(self.query(Panel))
        for panel in self._panels or self.query(Panel):
            panel.show(view)

    @on(events.ScreenResume)
    def catch_up(self, event: events.ScreenResume) -> None:
        """Draw what happened while another page was visible; pages add their own `on_screen_resume`."""
        # the styles of a hidden page change with the theme alone, which Textual applies by itself at the switch
        event.refresh_styles = False
        self.show(self.services.view)

    def on_screen_suspend(self) -> None:
        for log in self.query(LogPanel):
            log.stop_reading()

    def end_what_is_here(self) -> None:
        """End what is under the cursor: here the load under way, else the engine on the card."""
        self.services.orders.end()

    def action_find(self) -> None:
        self.query_one(SearchField).open()

    def action_show_all(self) -> None:
        """End the search; without one, return to the top of live lists."""
        for table in self.query(Table):
            if not table.filter:
                table.scroll_to_top()
        self.query_one(SearchField).action_drop()

    def action_copy(self) -> None:
        focused = self.focused
        row = focused.current if isinstance(focused, Table) else None
        if row is not None and row.copy:
            self.app.copy_to_clipboard(row.copy)
            self.services.say(f"Copied: {row.copy}")
        else:
            self.services.say(
                "This row has nothing to copy." if row else "No row is selected: move to one with j and k."
            )

    def on_search_changed(self, message: SearchChanged) -> None:
        for table in self.query(Table):
            table.set_filter(message.text)
        for log in self.query(LogPanel):
            log.find(message.text)
        if message.left:
            if message.text and self.query(Table):  # a log says by itself how many lines hold it
                self.services.say(f"Showing rows with “{message.text}”; esc shows all.")
            self.set_focus(self.query(self.AUTO_FOCUS or "*").first())


class LogsPage(Page):
    """Page of one engine's log."""

    title_key = "logs"
    keys = "space hold  [ ] engine  o raw lines  h l sideways  / find  ? help"

    def body(self) -> Iterable[Widget]:
        yield LogPanel()
