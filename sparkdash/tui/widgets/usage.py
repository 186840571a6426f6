"""Table of the requests of a period, added up by profile, client, key, hour or day."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from textual import work

from sparkdash.domain.metric import Metric
from sparkdash.errors import SparkdashError
from sparkdash.tui.lines.chart_window import DAY_S, ChartWindow
from sparkdash.tui.mirror import ConnectionState, View
from sparkdash.tui.text import EMPTY, EdgeText, Line, Style, clip, frame, pad, shorten, styled
from sparkdash.tui.widgets.chart import ChartPanel
from sparkdash.tui.widgets.panel import Panel
from sparkdash.tui.widgets.table import Column, Table, TableRow, figures, fitting_columns, titles
from sparkdash.units import DASH, duration, number, percent

if TYPE_CHECKING:
    from sparkdash.domain.history import UsageReport, UsageTotals

LEAST_GROUP, WIDEST_GROUP = 16, 32
TOTAL = "all"


def many(count: int) -> str:
    """Format a count in four figures: "604", "96.1 M"."""
    for unit, step in (("G", 1_000_000_000), ("M", 1_000_000), ("k", 10_000)):
        if count >= step:
            return f"{count / (1000 if unit == 'k' else step):.1f} {unit}"
    return str(count)


def _pair(first: str, second: str) -> str:
    return DASH if first == second == DASH else f"{first} / {second}"


def _per_1k(one: UsageTotals) -> float | None:
    return one.energy_wh / one.output_tokens * 1000 if one.energy_wh is not None and one.output_tokens else None


COLUMNS: tuple[Column[UsageTotals], ...] = (
    Column("requests", 10, 0, lambda one: many(one.requests)),
    Column("prompt", 9, 2, lambda one: many(one.prompt_tokens)),
    Column("cached", 8, 3, lambda one: percent(one.cached_tokens / one.prompt_tokens if one.prompt_tokens else None)),
    Column("out", 9, 1, lambda one: many(one.output_tokens)),
    Column("think", 9, 6, lambda one: many(one.reasoning_tokens) if one.reasoning_tokens else DASH),
    Column("wait p95", 10, 5, lambda one: duration(one.wait_s.p95)),
    Column("ttft p50/95", 15, 4, lambda one: _pair(number(one.ttft_s.p50, 2), number(one.ttft_s.p95, 2, " s"))),
    Column("tok/s p50", 11, 3, lambda one: number(one.decode_tok_s.p50, 1)),
    Column("Wh", 8, 5, lambda one: number(one.energy_wh, 1)),
    Column("Wh per 1k", 11, 7, lambda one: number(_per_1k(one), 2)),
    Column("errors", 8, 2, lambda one: str(one.errors + one.gone) if one.errors + one.gone else DASH),
)


def columns_for(width: int) -> list[Column[UsageTotals]]:
    return fitting_columns(COLUMNS, width - LEAST_GROUP - 2)


class UsageTable(Table):
    """Table of the groups, with their sum below them. `report` is set by the page."""

    title = "requests"
    nothing = "No request was recorded in this period."
    report: UsageReport | None = None

    def head(self, width: int) -> Line:
        columns = columns_for(width)
        by = f"{self.report.by}, whole hours" if self.report else ""
        group = pad(styled(by, Style.DIM), group_cells(width, columns))
        return styled(" ") + group + styled(titles(columns), Style.DIM)

    def rows(self, view: View, width: int) -> list[TableRow]:  # noqa: ARG002 - they come from the report
        if self.report is None or not self.report.rows:
            return []
        columns = columns_for(width)
        rows = [TableRow(one.group, partial(totals_line, one, columns, width), one.group) for one in self.report.rows]
        whole = partial(totals_line, self.report.total, columns, width, sum_of=len(rows))
        return [*rows, TableRow(TOTAL, whole)] if len(rows) > 1 else rows


def group_cells(width: int, columns: list[Column[UsageTotals]]) -> int:
    return min(width - 2 - sum(one.cells for one in columns), WIDEST_GROUP)


def totals_line(one: UsageTotals, columns: list[Column[UsageTotals]], width: int, sum_of: int = 0) -> Line:
    """Format the row of a group; `sum_of` groups are added up in that of all."""
    cells = group_cells(width, columns) - 1
    name = styled(f"all {sum_of}", Style.STRONG) if sum_of else styled(shorten(one.group or DASH, cells))
    return clip(styled(" ") + pad(name, cells) + styled(" ") + figures(columns, one, bad="errors"), width)


USAGE_EVERY_S, WEEKS_EVERY_S = 15.0, 60.0
WEEK_S = 7 * DAY_S


class TodayPanel(Panel):
    """Framed table of what was served since midnight: by profile, then by client where rows are left."""

    def __init__(self) -> None:
        super().__init__()
        self._profiles: UsageReport | None = None
        self._clients: UsageReport | None = None
        self._failure: str | None = None
        self._read_at = -USAGE_EVERY_S

    def show(self, view: View) -> None:
        super().show(view)
        if self.size.width and view.connection is ConnectionState.LIVE and view.here - self._read_at >= USAGE_EVERY_S:
            self._read_at = view.here
            self._read(view.now)

    def draw(self, view: View, width: int, height: int) -> list[Line]:  # noqa: ARG002 - it shows what was read
        body = today_lines(self._profiles, self._clients, width - 4, max(height - 2, 0))
        if self._profiles is None:
            body = [styled(self._failure or "reading the history…", Style.BAD if self._failure else Style.DIM)]
        head = EdgeText(styled("today"), _energy(self._profiles))
        key = styled("6", Style.STRONG) + styled(" history", Style.DIM)
        return frame(body, width, head, EdgeText(EMPTY, key), height=height)

    @work(group="today", exclusive=True)
    async def _read(self, now: float) -> None:
        offset = time.localtime(now).tm_gmtoff
        since = now - (now + offset) % DAY_S
        ask = self.services.daemon.history_usage
        try:
            self._profiles = await ask(by="profile", since=since, until=now, offset_s=offset)
            self._clients = await ask(by="client", since=since, until=now, offset_s=offset)
        except SparkdashError as error:
            self._failure = error.text()
        self.redraw()


def today_lines(profiles: UsageReport | None, clients: UsageReport | None, width: int, rows: int) -> list[Line]:
    if profiles is None or not profiles.rows:
        return [styled("No request ended today.", Style.DIM)]
    columns = columns_for(width)
    head = pad(styled(" profile", Style.DIM), group_cells(width, columns) + 1) + styled(titles(columns), Style.DIM)
    whole = [totals_line(profiles.total, columns, width, sum_of=len(profiles.rows))] if len(profiles.rows) > 1 else []
    lines = [head, *whole, *_groups(profiles.rows, columns, width, max(rows - 1 - len(whole), 1))]
    left = rows - len(lines) - 1
    if clients is None or not clients.rows or left < 1:
        return lines
    return [*lines, styled(" by client", Style.DIM), *_groups(clients.rows, columns, width, left)]


def _groups(found: Sequence[UsageTotals], columns: list[Column[UsageTotals]], width: int, rows: int) -> list[Line]:
    """Format the first groups; the last row counts those without one."""
    if len(found) <= rows:
        return [totals_line(one, columns, width) for one in found]
    kept, rest = found[: rows - 1], found[rows - 1 :]
    names = shorten(", ".join(one.group for one in rest), max(width - 14, 8))
    return [*(totals_line(one, columns, width) for one in kept), styled(f" + {len(rest)} more: {names}", Style.DIM)]


def _energy(report: UsageReport | None) -> Line:
    if report is None or report.busy_wh is None or report.idle_wh is None:
        return EMPTY
    told = f"{number(report.busy_wh, 1)} Wh busy, {number(report.idle_wh, 1)} idle"
    return styled(told, Style.PLAIN)


class WeeksChart(ChartPanel):
    """Chart of the rate of each request of the large engine: this week over the one before."""

    def __init__(self) -> None:
        super().__init__()
        self.window = ChartWindow(WEEK_S)
        self.second_name, self.second_shift_s = "the week before", WEEK_S
        self._of = ""
        self._week_read_at = -WEEKS_EVERY_S

    def show(self, view: View) -> None:
        profile = view.engine.profile if view.engine else ""
        if self.size.width and profile and view.connection is ConnectionState.LIVE:
            if profile != self._of:
                self.first = self.second = None
            if profile != self._of or view.here - self._week_read_at >= WEEKS_EVERY_S:
                self._of, self._week_read_at = profile, view.here
                self._read_weeks(profile, view.now)
        self.title = f"decode, each · {self._of} · week" if self._of else "decode, each · week"
        super().show(view)

    def draw(self, view: View, width: int, height: int) -> list[Line]:
        if self._of:
            return super().draw(view, width, height)
        told = styled("No engine runs.", Style.DIM)
        return frame([told], width, EdgeText(styled(self.title, Style.STRONG)), height=height)

    @work(group="weeks", exclusive=True)
    async def _read_weeks(self, profile: str, now: float) -> None:
        points = 2 * self.cells
        try:
            first, second = [
                await self.services.daemon.history_series(
                    figure=Metric.DECODE_EACH, profile=profile, since=until - WEEK_S, until=until, points=points
                )
                for until in (now, now - WEEK_S)
            ]
        except SparkdashError as error:
            self.failure_text = error.text()
        else:
            self.first, self.second, self.failure_text = first, second, None
        self.redraw()
