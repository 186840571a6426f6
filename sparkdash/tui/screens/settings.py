"""The settings page: every key of config.toml with its value, default and meaning; changes are written at once."""

from collections.abc import Iterable
from functools import partial
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import Input

from sparkdash.api.answers import Setting, SettingList
from sparkdash.errors import SparkdashError
from sparkdash.tui.mirror import View
from sparkdash.tui.screens.dialog import TextDialog
from sparkdash.tui.screens.page import Page
from sparkdash.tui.text import EMPTY, EdgeText, Line, Style, clip, frame, key_hint, key_hints, pad, styled, wrap
from sparkdash.tui.widgets.panel import Field, Panel, RowChosen, RowMoved
from sparkdash.tui.widgets.table import Table, TableRow

NAME, VALUE, HOLDS = 24, 22, 11
ROOMY, MEANING_FROM = 100, 76
"""Terminal widths from which the default and the meaning have columns."""


def holds(found: Setting) -> str:
    return "a change holds at once" if found.live else "a change holds after a restart of the daemon"


class SettingTable(Table):
    """Table of every setting. `listed` is set by the page."""

    title = "settings"
    nothing = "reading the settings…"
    listed: SettingList | None = None

    def setting(self, name: str | None) -> Setting | None:
        return next((one for one in self.listed.settings if one.name == name), None) if self.listed else None

    def head(self, width: int) -> Line:
        default = f"{'default':<{VALUE}}" if width >= ROOMY else ""
        meaning = f"{'holds':<{HOLDS}}meaning" if width >= MEANING_FROM else "holds"
        return styled(f" {'setting':<{NAME}}{'value':<{VALUE}}{default}{meaning}", Style.DIM)

    def rows(self, view: View, width: int) -> list[TableRow]:  # noqa: ARG002 - they come from the daemon's list
        found = self.listed.settings if self.listed else ()
        return [TableRow(one.name, partial(_setting_line, one, width), f"{one.name} = {one.value}") for one in found]


def _setting_line(one: Setting, width: int) -> Line:
    own = one.value != one.default
    line = styled(" ") + pad(styled(one.name, Style.STRONG if own else Style.PLAIN), NAME - 1) + styled(" ")
    line += pad(styled(one.value, Style.STRONG if own else Style.PLAIN), VALUE - 1) + styled(" ")
    if width >= ROOMY:
        line += pad(styled(one.default, Style.DIM), VALUE - 1) + styled(" ")
    if one.waits is not None:
        when = styled("! restart", Style.WARN)
    else:
        when = styled("● now", Style.GOOD) if one.live else styled("◐ restart", Style.DIM)
    return (
        clip(line + pad(when, HOLDS) + styled(one.meaning, Style.DIM), width) if width >= MEANING_FROM else line + when
    )


class SettingDetail(Panel):
    """Whole meaning of the setting under the cursor. `chosen` is set by the page."""

    chosen: Setting | None = None

    def draw(self, view: View, width: int, height: int) -> list[Line]:  # noqa: ARG002 - the setting is given
        one = self.chosen
        if one is None:
            return frame([], width, EdgeText(styled("no setting")), height=height)
        lines = wrap(one.meaning, width - 4, limit=max(height - 4, 1))
        waits = styled(f" · {one.waits} after a restart of the daemon", Style.WARN) if one.waits else EMPTY
        lines.append(styled(f"{one.value} · default {one.default} · {holds(one)}", Style.DIM) + waits)
        keys = key_hints(("⏎", "change"), ("d", "default")) if one.editable else key_hint("e", "edit file")
        return frame(lines, width, EdgeText(styled(one.name, Style.STRONG), keys), height=height)


READ_AGAIN_S = 3.0
"""Time after which the daemon has read an edited file."""
KEYS = (("⏎", "write"), ("esc", "back"))
FIELD_AT = 11
"""Cells of the frame left of the field, as in sparkdash.tcss."""


class SettingsPage(Page):
    """Page of all settings, opened above the others."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("r", "read", "read again"),
        Binding("d", "default", "use the default"),
        Binding("e", "edit_file", "edit config.toml"),
    ]

    title_key = "settings"
    keys = "⏎ change  e edit file  esc back  d default  r read again  / find  ? help"

    def body(self) -> Iterable[Widget]:
        yield SettingTable()
        yield SettingDetail()

    def on_mount(self) -> None:
        self.action_read()

    def on_row_moved(self, message: RowMoved) -> None:
        detail = self.query_one(SettingDetail)
        detail.chosen = self.query_one(SettingTable).setting(message.key)
        detail.redraw()

    def on_row_chosen(self, message: RowChosen) -> None:
        message.stop()
        self._change()

    def action_show_all(self) -> None:
        """End the search; without one, leave the page."""
        if any(table.filter for table in self.query(SettingTable)):
            super().action_show_all()
        else:
            self.dismiss()

    def action_edit_file(self) -> None:
        """Edit config.toml in the owner's editor, and read it again after the dialogs."""
        self.services.orders.edit_settings()
        self.set_timer(READ_AGAIN_S, self.action_read)

    def action_default(self) -> None:
        """Remove the key under the cursor from the file, so that its default holds."""
        found = self._chosen()
        if found is not None and found.given:
            self._remove(found)
        elif found is not None:
            self.services.say(f"{found.name} has its default already.")

    def _chosen(self) -> Setting | None:
        table = self.query_one(SettingTable)
        found = table.setting(table.cursor)
        if found is not None and not found.editable:
            file = table.listed.file if table.listed else "config.toml"
            self.services.say(f"{found.name} is a table: e edits {file}, which is read again at once.")
            return None
        return found

    @work(group="settings", exclusive=True)
    async def action_read(self) -> None:
        table = self.query_one(SettingTable)
        try:
            self._show(await self.services.daemon.settings())
        except SparkdashError as error:
            table.nothing = error.text()
            table.redraw()

    @work(group="change", exclusive=True)
    async def _change(self) -> None:
        if (found := self._chosen()) is None:
            return
        said: str | None = None
        value: str | None = found.waits or found.value
        while (value := await self.app.push_screen_wait(ValueDialog(found, value or "", said))) is not None:
            try:
                self._show(await self.services.daemon.change_setting(key=[found.name], value=value))
            except SparkdashError as error:
                said = error.text()
                continue
            self.services.say(f"{found.name} is {value}: {holds(found)}.")
            return

    @work(group="change", exclusive=True)
    async def _remove(self, found: Setting) -> None:
        try:
            self._show(await self.services.daemon.change_setting(key=[found.name], value=None))
        except SparkdashError as error:
            self.services.say(error.text(), bad=True)
        else:
            self.services.say(f"{found.name} has its default, {found.default}, again: {holds(found)}.")

    def _show(self, listed: SettingList) -> None:
        table = self.query_one(SettingTable)
        table.listed = listed
        table.redraw()
        detail = self.query_one(SettingDetail)
        detail.chosen = table.setting(table.cursor)
        detail.redraw()


class ValueDialog(TextDialog[str | None]):
    """Modal dialog with a field; its result is the new value, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "leave")]

    def __init__(self, found: Setting, value: str, said: str | None) -> None:
        """Make a dialog. `said`: why the value before was refused."""
        super().__init__(found.name, partial(_value_lines, found, said), KEYS)
        self._value = value if value != "-" else ""

    def compose(self) -> ComposeResult:
        yield from super().compose()
        yield Field(self._value, placeholder="new value", compact=True)

    def on_mount(self) -> None:
        self.query_one(Field).focus()

    def on_resize(self) -> None:
        super().on_resize()
        self.query_one(Field).styles.width = self.text.wanted(self.app.size.width) - FIELD_AT - 2

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.dismiss(event.value.strip() or None)


def _value_lines(found: Setting, said: str | None, width: int) -> list[Line]:
    lines = wrap(found.meaning, width)
    lines += [EMPTY, styled("default  ", Style.DIM) + styled(found.default)]
    lines += [styled("holds    ", Style.DIM) + styled(holds(found))]
    lines += [EMPTY, *wrap(said, width, Style.BAD)] if said else []
    return [*lines, EMPTY, styled("value", Style.DIM)]
