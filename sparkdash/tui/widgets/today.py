"""Panels of a wide dashboard that read the history: the totals of today, and this week over the last one.

Owns: when each reads. Must not know: how requests are added up, or figures recorded.
Rule: a panel that is not shown reads nothing.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from textual import work

from sparkdash.domain.history import UsageReport, UsageTotals
from sparkdash.domain.metric import Metric
from sparkdash.errors import SparkdashError
from sparkdash.tui.ink import EMPTY, EdgeText, Ink, Line, clip, frame, inked, pad, shorten
from sparkdash.tui.lines.chart_window import DAY_S, ChartWindow
from sparkdash.tui.mirror import LinkState, View
from sparkdash.tui.widgets.chart import ChartPanel
from sparkdash.tui.widgets.panel import Panel
from sparkdash.tui.widgets.usage import UsageColumn, columns_for, group_cells, totals_line
from sparkdash.units import number

USAGE_EVERY_S, WEEKS_EVERY_S = 15.0, 60.0
WEEK_S = 7 * DAY_S
CLIENTS = " by client"


class TodayPanel(Panel):
    """Framed table of what was served since midnight: by profile, then by client where rows are left."""

    def __init__(self, **rest: Any) -> None:
        super().__init__(**rest)
        self._profiles: UsageReport | None = None
        self._clients: UsageReport | None = None
        self._failure: str | None = None
        self._read_at = -USAGE_EVERY_S

    def show(self, view: View) -> None:
        """Draw the panel; read again when that is due."""
        super().show(view)
        if self.size.width and view.link is LinkState.LIVE and view.here - self._read_at >= USAGE_EVERY_S:
            self._read_at = view.here
            self._read(view.now)

    def draw(self, view: View, width: int, height: int) -> list[Line]:  # noqa: ARG002 - it shows what was read
        """Return the framed table."""
        rows = max(height - 2, 0)
        inner = width - 4
        body = [clip(line, inner) for line in today_lines(self._profiles, self._clients, inner, rows)]
        if self._profiles is None:
            body = [inked(self._failure or "reading the history…", Ink.BAD if self._failure else Ink.DIM)]
        head = EdgeText(inked("today"), _energy(self._profiles))
        key = inked("6", Ink.STRONG) + inked(" history", Ink.DIM)
        return frame([*body, *[EMPTY] * rows][:rows], width, head, EdgeText(EMPTY, key))

    @work(group="today", exclusive=True)
    async def _read(self, now: float) -> None:
        offset = time.localtime(now).tm_gmtoff
        since = now - (now + offset) % DAY_S
        ask = self.services.link.history_usage
        try:
            self._profiles = await ask(by="profile", since=since, until=now, offset_s=offset)
            self._clients = await ask(by="client", since=since, until=now, offset_s=offset)
        except SparkdashError as error:
            self._failure = error.text()
        self.redraw()


def today_lines(profiles: UsageReport | None, clients: UsageReport | None, width: int, rows: int) -> list[Line]:
    """Format the totals in at most `rows` lines: all, each profile, then each client."""
    if profiles is None or not profiles.rows:
        return [inked("No request ended today.", Ink.DIM)]
    columns = columns_for(width)
    names = "".join(f"{one.name:>{one.cells}}" for one in columns)
    head = pad(inked(" profile", Ink.DIM), group_cells(width, columns) + 1) + inked(names, Ink.DIM)
    whole = [totals_line(profiles.total, columns, width, sum_of=len(profiles.rows))] if len(profiles.rows) > 1 else []
    lines = [head, *whole, *_groups(profiles.rows, columns, width, max(rows - 1 - len(whole), 1))]
    left = rows - len(lines) - 1
    if clients is None or not clients.rows or left < 1:
        return lines
    return [*lines, inked(CLIENTS, Ink.DIM), *_groups(clients.rows, columns, width, left)]


def _groups(found: Sequence[UsageTotals], columns: list[UsageColumn], width: int, rows: int) -> list[Line]:
    """Format the first groups; the last row counts those without one."""
    if len(found) <= rows:
        return [totals_line(one, columns, width) for one in found]
    kept, rest = found[: rows - 1], found[rows - 1 :]
    names = shorten(", ".join(one.group for one in rest), max(width - 14, 8))
    return [*(totals_line(one, columns, width) for one in kept), inked(f" + {len(rest)} more: {names}", Ink.DIM)]


def _energy(report: UsageReport | None) -> Line:
    """Say what the box used today; empty without a sensor."""
    if report is None or report.busy_wh is None or report.idle_wh is None:
        return EMPTY
    told = f"{number(report.busy_wh, 1)} Wh busy, {number(report.idle_wh, 1)} idle"
    return inked(told, Ink.PLAIN)


class WeeksChart(ChartPanel):
    """Chart of the rate of each request of the large engine: this week over the one before."""

    def __init__(self, **rest: Any) -> None:
        super().__init__(**rest)
        self.window = ChartWindow(WEEK_S)
        self.second_name, self.second_shift_s = "the week before", WEEK_S
        self._of = ""
        self._week_read_at = -WEEKS_EVERY_S

    def show(self, view: View) -> None:
        """Draw the chart; read it again when that is due, or when another engine is large."""
        profile = view.engine.profile if view.engine else ""
        if self.size.width and profile and view.link is LinkState.LIVE:
            if profile != self._of:
                self.first = self.second = None
            if profile != self._of or view.here - self._week_read_at >= WEEKS_EVERY_S:
                self._of, self._week_read_at = profile, view.here
                self._read_weeks(profile, view.now)
        self.title = f"decode, each · {self._of} · week" if self._of else "decode, each · week"
        super().show(view)

    def draw(self, view: View, width: int, height: int) -> list[Line]:
        """Return the chart; without any engine yet, say so."""
        if self._of:
            return super().draw(view, width, height)
        rows = max(height - 2, 0)
        told = inked("No engine runs.", Ink.DIM)
        return frame([told, *[EMPTY] * rows][:rows], width, EdgeText(inked(self.title, Ink.STRONG)))

    @work(group="weeks", exclusive=True)
    async def _read_weeks(self, profile: str, now: float) -> None:
        try:
            first, second = [
                await self.services.link.history_series(
                    figure=Metric.DECODE_EACH.value, profile=profile, since=until - WEEK_S, until=until, points=points
                )
                for until, points in ((now, 2 * self.cells), (now - WEEK_S, 2 * self.cells))
            ]
        except SparkdashError as error:
            self.failure_text = error.text()
        else:
            self.first, self.second, self.failure_text = first, second, None
        self.redraw()
