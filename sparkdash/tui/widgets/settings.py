"""Table of the settings, and the meaning of the one under the cursor.

Owns: the columns. Must not know: how a value is changed.
"""

from __future__ import annotations

from functools import partial

from sparkdash.api.answers import Setting, SettingList
from sparkdash.tui.ink import EMPTY, EdgeText, Ink, Line, clip, frame, inked, pad, wrap
from sparkdash.tui.mirror import View
from sparkdash.tui.widgets.panel import Panel
from sparkdash.tui.widgets.table import Table, TableRow

NAME, VALUE, HOLDS = 24, 22, 11
ROOMY = 100
"""Terminal width from which the default has a column."""


def holds(found: Setting) -> str:
    """Say when a change of this setting takes effect."""
    return "a change holds at once" if found.live else "a change holds after a restart of the daemon"


class SettingTable(Table):
    """Table of every setting. `listed` is set by the page."""

    title = "settings"
    nothing = "reading the settings…"
    listed: SettingList | None = None

    def setting(self, name: str | None) -> Setting | None:
        """Return the setting of that name."""
        return next((one for one in self.listed.settings if one.name == name), None) if self.listed else None

    def head(self, width: int) -> Line:
        """Return the column titles."""
        default = f"{'default':<{VALUE}}" if width >= ROOMY else ""
        return inked(f" {'setting':<{NAME}}{'value':<{VALUE}}{default}{'holds':<{HOLDS}}meaning", Ink.DIM)

    def rows(self, view: View, width: int) -> list[TableRow]:  # noqa: ARG002 - they come from the daemon's list
        """Return a row for each setting; values that differ from the default are bright."""
        found = self.listed.settings if self.listed else ()
        return [TableRow(one.name, partial(_setting_line, one, width), f"{one.name} = {one.value}") for one in found]


def _setting_line(one: Setting, width: int) -> Line:
    own = one.value != one.default
    line = inked(" ") + pad(inked(one.name, Ink.STRONG if own else Ink.PLAIN), NAME - 1) + inked(" ")
    line += pad(inked(one.value, Ink.STRONG if own else Ink.PLAIN), VALUE - 1) + inked(" ")
    if width >= ROOMY:
        line += pad(inked(one.default, Ink.DIM), VALUE - 1) + inked(" ")
    if one.waits is not None:
        when = inked("! restart", Ink.WARN)
    else:
        when = inked("● now", Ink.GOOD) if one.live else inked("◐ restart", Ink.DIM)
    return clip(line + pad(when, HOLDS) + inked(one.meaning, Ink.DIM), width)


class SettingDetail(Panel):
    """Whole meaning of the setting under the cursor. `chosen` is set by the page."""

    chosen: Setting | None = None

    def draw(self, view: View, width: int, height: int) -> list[Line]:  # noqa: ARG002 - the setting is given
        """Return the framed meaning."""
        one = self.chosen
        if one is None:
            return frame([EMPTY] * (height - 2), width, EdgeText(inked("no setting")))
        lines = wrap(one.meaning, width - 4, limit=max(height - 4, 1))
        waits = inked(f" · {one.waits} after a restart of the daemon", Ink.WARN) if one.waits else EMPTY
        lines.append(inked(f"{one.value} · default {one.default} · {holds(one)}", Ink.DIM) + waits)
        lines += [EMPTY] * (height - 2 - len(lines))
        return frame(
            [clip(line, width - 4) for line in lines[: height - 2]], width, EdgeText(inked(one.name, Ink.STRONG))
        )
