"""The history page: charts of recorded figures with the usage of the same period, or the swaps and notices.

Rule: a hidden page reads nothing; a chart that ends now is read again at most once per bucket.
"""

import time
from collections.abc import Iterable
from typing import ClassVar

from textual import work
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widget import Widget

from sparkdash.domain.history import MOST_POINTS, FigureInfo, FigureList, Series, UsageGroup
from sparkdash.errors import SparkdashError
from sparkdash.tui.layout import chart_height
from sparkdash.tui.lines.chart_window import DAY_S, ChartWindow
from sparkdash.tui.mirror import ConnectionState, View
from sparkdash.tui.screens.page import Page
from sparkdash.tui.widgets.chart import ChartDragged, ChartPanel, ChartSubject, ChartZoomed
from sparkdash.tui.widgets.header import Hints
from sparkdash.tui.widgets.panel import RowChosen
from sparkdash.tui.widgets.swaps import NoticeList, SwapTable
from sparkdash.tui.widgets.usage import UsageTable, many

AGAIN_S, USAGE_AGAIN_S = 2.0, 15.0
"""Least interval between two reads of a chart that ends now, and of the usage below it."""
GROUPS: tuple[UsageGroup, ...] = ("profile", "client", "key", "session", "hour", "day")
FIRST = (
    "decode_tok_s", "decode_each_tok_s", "prompt_tok_s", "ttft_p95_s", "running", "kv_used", "prefix_hit", "acceptance",
    "memory_bytes", "gpu_power_w", "memory_available_bytes", "gpu_utilization", "gpu_temperature_c",
)  # fmt: skip
"""Figures that come first when `f` goes through them, as far as there are records."""
SWAP_KEYS = "v charts  ⏎ open  y copy  / find  ? help"
BOX = ""
BEFORE = "\0before"
"""Stands for the period before among the profiles to compare with."""


class HistoryPage(Page):
    """Page with a chart above the usage of its period; `v` shows the swaps and notices instead."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left_square_bracket", "period(-1)", "window: shorter"),
        Binding("right_square_bracket", "period(1)", "window: longer"),
        Binding("plus,equals_sign", "zoom(0.5)", "zoom in; so does the wheel"),
        Binding("minus", "zoom(2.0)", "zoom out"),
        Binding("left", "cursor(-1)", "cursor to the left or right"),
        Binding("right", "cursor(1)", "cursor to the left or right"),
        Binding("h,shift+left", "pan(-0.25)", "earlier, later; a drag does the same"),
        Binding("l,shift+right", "pan(0.25)", "earlier, later; a drag does the same"),
        Binding("0", "now", "window: up to now"),
        Binding("f", "figure", "next figure"),
        Binding("o", "profile(1)", "next profile"),
        Binding("p", "over", "the period before over it, then other profiles"),
        Binding("m", "marks", "marks of swaps and events"),
        Binding("b", "group", "group the table by client, key, session, hour or day"),
        Binding("v", "swaps", "swaps and notices"),
    ]

    title_key = "history"
    keys = "[ ] window  f figure  o profile  p compare  b group  v swaps  + - zoom  ← → cursor  m marks  ? help"
    AUTO_FOCUS = "UsageTable"

    def __init__(self) -> None:
        super().__init__()
        self._known: FigureList | None = None
        self._subject = ChartSubject(FIRST[0], BOX)
        self._second: str | None = None
        """Profile that is drawn over the first, or BEFORE; None: none."""
        self._are_marks_shown = True
        self._by: UsageGroup = "profile"
        self._read_at = self._known_at = 0.0
        self._usage: tuple[object, float] = (None, 0.0)
        """Period and group of the usage that is shown, and when it was read."""
        self._was_connected = False

    def body(self) -> Iterable[Widget]:
        yield Vertical(ChartPanel(), UsageTable(), id="charts")
        yield Vertical(SwapTable(), NoticeList(), id="past-swaps")

    def on_mount(self) -> None:
        self.query_one("#past-swaps").display = False

    def chart_subject(self, figure: str, profile: str) -> None:
        """Chart a figure of a profile; before the page is mounted, its first read does."""
        if self.query(ChartPanel):
            self._chart(ChartSubject(figure, profile))
        else:
            self._subject = ChartSubject(figure, profile)

    def on_screen_resume(self) -> None:
        self._read()

    def show(self, view: View) -> None:
        super().show(view)
        if not self.is_current or not self.query(ChartPanel):
            return
        connected, before = view.connection is ConnectionState.LIVE, self._was_connected
        self._was_connected = connected
        chart = self.query_one(ChartPanel)
        due = max(AGAIN_S, chart.first.step_s if chart.first else AGAIN_S)
        if (connected and not before) or (connected and chart.window.end is None and view.here - self._read_at >= due):
            self._read()

    def on_resize(self) -> None:
        """Give the chart the rows that the usage below it leaves."""
        report, rows = self.query_one(UsageTable).report, self.app.size.height
        groups = len(report.rows) if report else 0
        self.query_one(ChartPanel).styles.height = chart_height(rows, groups)

    def on_row_chosen(self, message: RowChosen) -> None:
        if self.query_one("#past-swaps").display:
            self.services.orders.open_swap(message.key)

    def on_chart_zoomed(self, message: ChartZoomed) -> None:
        chart = self.query_one(ChartPanel)
        self._look(chart.window.zoomed(message.factor, message.at, self.services.view.now))

    def on_chart_dragged(self, message: ChartDragged) -> None:
        self._look(self.query_one(ChartPanel).window.panned(message.share, self.services.view.now))

    def action_period(self, by: int) -> None:
        self._look(self.query_one(ChartPanel).window.stepped(by))

    def action_zoom(self, factor: float) -> None:
        chart, now = self.query_one(ChartPanel), self.services.view.now
        begin, end = chart.window.period(now)
        inside = chart.cursor is not None and begin <= chart.cursor <= end
        at = (chart.cursor - begin) / (end - begin) if inside and chart.cursor is not None else 1.0
        self._look(chart.window.zoomed(factor, at, now))

    def action_pan(self, share: float) -> None:
        self._look(self.query_one(ChartPanel).window.panned(share, self.services.view.now))

    def action_now(self) -> None:
        chart = self.query_one(ChartPanel)
        chart.cursor = None
        self._look(ChartWindow(chart.window.length_s))

    def action_cursor(self, by: int) -> None:
        self.query_one(ChartPanel).move_cursor(by, self.services.view.now)

    def action_figure(self) -> None:
        names = [one.name for one in self._figures()]
        if names:
            at = names.index(self._subject.figure) if self._subject.figure in names else -1
            self._chart(ChartSubject(names[(at + 1) % len(names)], self._subject.profile))

    def action_profile(self, by: int) -> None:
        profiles = self._profiles()
        at = profiles.index(self._subject.profile) if self._subject.profile in profiles else -by
        profile = profiles[(at + by) % len(profiles)]
        has = [one.name for one in self._figures(profile)]
        figure = self._subject.figure if self._subject.figure in has or not has else has[0]
        self._chart(ChartSubject(figure, profile))

    def action_over(self) -> None:
        """Draw the period before over this one, then each other profile, then nothing."""
        others = [one for one in self._profiles() if one not in (BOX, self._subject.profile)]
        choices = [None, BEFORE, *others]
        at = choices.index(self._second) if self._second in choices else 0
        self._second = choices[(at + 1) % len(choices)]
        self._read()

    def action_marks(self) -> None:
        self._are_marks_shown = not self._are_marks_shown
        self._read()

    def action_group(self) -> None:
        self._by = GROUPS[(GROUPS.index(self._by) + 1) % len(GROUPS)]
        self._read()

    def action_swaps(self) -> None:
        charts, swaps = self.query_one("#charts"), self.query_one("#past-swaps")
        charts.display, swaps.display = swaps.display, not swaps.display
        self.set_focus(self.query_one(SwapTable) if swaps.display else self.query_one(UsageTable))
        for hints in self.query(Hints):
            hints.change_keys(SWAP_KEYS if swaps.display else self.keys)
        self.call_after_refresh(self.show, self.services.view)

    def _profiles(self) -> list[str]:
        found = {one.profile for one in self._known.subjects} if self._known else set()
        return [BOX, *sorted(found - {BOX})]

    def _figures(self, profile: str | None = None) -> list[FigureInfo]:
        name = self._subject.profile if profile is None else profile
        of = "engine" if name else "box"
        found = [one for one in (self._known.figures if self._known else ()) if of in one.of]
        rank = {figure: number for number, figure in enumerate(FIRST)}
        return sorted(found, key=lambda one: rank.get(one.name, len(FIRST)))

    def _look(self, window: ChartWindow) -> None:
        chart = self.query_one(ChartPanel)
        chart.window = window
        chart.redraw()
        self._read()

    def _chart(self, subject: ChartSubject) -> None:
        self._subject = subject
        chart = self.query_one(ChartPanel)
        chart.first = chart.second = None
        if self._second == subject.profile:
            self._second = None
        chart.title = self._title()
        chart.redraw()
        self._read()

    def _title(self) -> str:
        labels = {one.name: one.label for one in self._known.figures} if self._known else {}
        label = labels.get(self._subject.figure, self._subject.figure)
        return f"{self._subject.profile or 'box'} · {label} · {self.query_one(ChartPanel).window.name}"

    @work(group="history", exclusive=True)
    async def _read(self) -> None:
        view, chart = self.services.view, self.query_one(ChartPanel)
        self._read_at = view.here
        begin, end = chart.window.period(view.now)
        try:
            if self._known is None or self._read_at - self._known_at > 60:
                self._known, self._known_at = await self.services.daemon.history_figures(), self._read_at
            chart.first = await self._series(self._subject.profile, begin, end)
            await self._read_second(begin, end)
            found = await self.services.daemon.history_marks(since=begin, until=end) if self._are_marks_shown else None
            chart.marks = found.marks if found else ()
            await self._read_usage(begin, end, view.here)
        except SparkdashError as error:
            chart.failure_text = error.text()
            chart.first = chart.first if error.code != "no_history" else None
        else:
            chart.failure_text = None
        chart.title = self._title()
        chart.redraw()

    async def _read_second(self, begin: float, end: float) -> None:
        chart = self.query_one(ChartPanel)
        if self._second == BEFORE:
            length = end - begin
            chart.second = await self._series(self._subject.profile, begin - length, end - length)
            chart.second_shift_s, chart.second_name = length, "before"
        elif self._second is not None:
            chart.second = await self._series(self._second, begin, end)
            chart.second_shift_s, chart.second_name = 0.0, self._second
        else:
            chart.second = None

    async def _series(self, profile: str, begin: float, end: float) -> Series:
        points = min(max(2 * self.query_one(ChartPanel).cells, 60), MOST_POINTS)
        return await self.services.daemon.history_series(
            figure=self._subject.figure, profile=profile or None, since=max(begin, 0.0), until=end, points=points
        )

    async def _read_usage(self, begin: float, end: float, here: float) -> None:
        wanted = (self._by, self._subject.profile, self.query_one(ChartPanel).window)
        if self._usage[0] == wanted and here - self._usage[1] < USAGE_AGAIN_S:
            return
        table, offset = self.query_one(UsageTable), time.localtime(end).tm_gmtoff
        table.report = await self.services.daemon.history_usage(
            by=self._by, since=max(begin, 0.0), until=end, profile=self._subject.profile or None, offset_s=offset
        )
        now = self.services.view.now
        midnight = now - (now + offset) % DAY_S
        day = await self.services.daemon.history_usage(by="profile", since=midnight, until=now, offset_s=offset)
        today = day.total
        energy = f", {today.energy_wh:.3g} Wh" if today.energy_wh is not None else ""
        told = f"{many(today.requests)} requests, {many(today.output_tokens)} tokens out{energy}"
        self.query_one(ChartPanel).today = f"today {told}"
        self.on_resize()
        table.redraw()
        self._usage = (wanted, here)
