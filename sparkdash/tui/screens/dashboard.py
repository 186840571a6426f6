"""The dashboard page: one large engine, the others, memory, GPU, requests; in two columns also what was before.

Owns: the heights of its panels. Must not know: what they draw.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import ClassVar

from textual import events, work
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widget import Widget

from sparkdash.errors import SparkdashError
from sparkdash.tui.hero_choice import HeroChoice
from sparkdash.tui.layout import Contents, Heights, has_two_columns, heights, left_cells
from sparkdash.tui.mirror import LinkState, View
from sparkdash.tui.screens.first_run import FirstRunPage
from sparkdash.tui.widgets.card import EngineCard
from sparkdash.tui.widgets.compare import ComparePanel
from sparkdash.tui.widgets.gpu import GpuRow
from sparkdash.tui.widgets.log import LogPanel
from sparkdash.tui.widgets.memory import MemoryBar
from sparkdash.tui.widgets.panel import AS_TALL_AS_NEEDED, Panel
from sparkdash.tui.widgets.power import PowerPanel
from sparkdash.tui.widgets.requests import RequestTable
from sparkdash.tui.widgets.residents import Residents, others
from sparkdash.tui.widgets.swaps import SwapTable
from sparkdash.tui.widgets.today import TodayPanel, WeeksChart

AGAIN_S = 2.0
"""Least interval between two reads of a recorded window."""
POINTS = 360
"""Buckets asked for: more than the dot columns of most charts."""


class DashboardPage(FirstRunPage):
    """Page of one column, or of two from TWO_COLUMNS_FROM terminal columns on."""

    title_key = "dashboard"
    keys = "f large  s switch  e each  / find  [ ] window  v layout  h history  ? help"
    AUTO_FOCUS = "RequestTable"

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("e", "each", "each request or all", show=False),
        Binding("left_square_bracket", "window(-1)", "shorter chart", show=False),
        Binding("right_square_bracket", "window(1)", "longer chart", show=False),
        Binding("h", "history", "this chart in the history", show=False),
        Binding("v", "arrange", "layout: all, hero, rows", show=False),
    ]

    _read_at = 0.0
    """When a recorded series was last asked for, on this terminal's clock."""
    _shared: tuple[int, int, Heights, Contents] | None = None
    """Size of the terminal, and the heights that the panels have now for what they show."""

    def body(self) -> Iterable[Widget]:
        """Yield both columns."""
        left = Vertical(
            EngineCard(),
            Residents(),
            MemoryBar(),
            GpuRow(),
            PowerPanel(),
            ComparePanel(),
            SwapTable(beside=True, cursor=False),
            id="left",
        )
        right = Vertical(RequestTable(beside=True, cursor=False), TodayPanel(), WeeksChart(), LogPanel(), id="right")
        yield Widget(left, right, id="dashboard")

    def show(self, view: View) -> None:
        """Share the rows among the panels, then draw them."""
        self._share(view)
        super().show(view)
        self._read_window(view)

    def action_each(self) -> None:
        """Make the rate of each request the large figure, or that of all together again."""
        hero = self.services.view.hero
        self._choose(replace(hero, is_each=not hero.is_each, series=None))
        self.services.say("The large figure is all requests together." if hero.is_each else "The large figure is each.")

    def action_window(self, by: int) -> None:
        """Chart a longer or shorter time."""
        hero = self.services.view.hero
        chosen = replace(hero, window_s=hero.stepped(by), series=None)
        self._choose(chosen)
        self.services.say(f"The chart shows: {chosen.window_name}.")

    def action_history(self) -> None:
        """Open the history with this chart."""
        if engine := self.services.view.engine:
            self.services.open_history(self.services.view.hero.metric.value, engine.profile)
        else:
            self.services.say("No engine runs.")

    def action_arrange(self) -> None:
        """Show the next choice of panels."""
        self.services.arrange(self.services.view.arrangement.after)

    def _choose(self, hero: HeroChoice) -> None:
        self._read_at = 0.0
        self.services.choose_hero(hero)

    def _read_window(self, view: View) -> None:
        """Read the chosen window of the large engine where a newer bucket is due."""
        engine = view.engine
        due = view.here - self._read_at >= AGAIN_S and view.link is LinkState.LIVE
        if engine and due and self.is_current and view.hero.wants(engine.profile, view.now):
            self._read_at = view.here
            self._read_series(engine.profile, view)

    @work(group="window", exclusive=True)
    async def _read_series(self, profile: str, view: View) -> None:
        hero = view.hero
        try:
            series = await self.services.link.history_series(
                figure=hero.metric.value, profile=profile, since=view.now - hero.window_s, until=view.now, points=POINTS
            )
        except SparkdashError as error:
            self.services.say(error.text(), bad=True)
            return
        now = self.services.view.hero
        if (now.is_each, now.window_s) == (hero.is_each, hero.window_s):
            self.services.choose_hero(replace(now, series=series))

    def on_resize(self, _event: events.Resize) -> None:
        """Share the rows anew."""
        self._share(self.services.view)

    def _share(self, view: View) -> None:
        if not self.query(LogPanel):
            return  # it is being made or taken apart
        columns, rows = self.app.size
        two = has_two_columns(columns, rows, view.arrangement)
        inner = left_cells(columns) if two else columns
        wanted = self._contents(view, inner, two=two)
        shared = heights(columns, rows, wanted, view.arrangement)
        if (columns, rows, shared, wanted) == self._shared:
            return
        self._shared = (columns, rows, shared, wanted)
        memory = self.query_one(MemoryBar)
        memory.chart_rows = shared.memory_chart
        _size(memory, wanted.memory + shared.memory_chart)
        _size(self.query_one(GpuRow), wanted.gpu)
        self.query_one("#left").styles.width = inner if two else "1fr"
        self.query_one("#left").styles.height = "1fr" if two else "auto"
        self.query_one("#dashboard").styles.layout = "horizontal" if two else "vertical"
        _size(self.query_one(EngineCard), shared.card)
        _size(self.query_one(Residents), shared.beside)
        _size(self.query_one(ComparePanel), shared.compare)
        _size(self.query_one(SwapTable), shared.swaps)
        _size(self.query_one(RequestTable), shared.requests)
        _size(self.query_one(LogPanel), shared.log)
        _size(self.query_one(PowerPanel), shared.power)
        _size(self.query_one(TodayPanel), shared.today)
        _size(self.query_one(WeeksChart), shared.weeks)
        self.query_one("#right").display = shared.requests > 0

    def _contents(self, view: View, width: int, *, two: bool) -> Contents:
        def rows(panel: Panel) -> int:
            return len(panel.draw(view, width, AS_TALL_AS_NEEDED))

        memory = self.query_one(MemoryBar)
        return Contents(
            beside=len(others(view)),
            memory=memory.rows_without_chart(view, width),
            gpu=rows(self.query_one(GpuRow)),
            compare=rows(self.query_one(ComparePanel)) if two else 0,
            charted=memory.has_chart(view),
        )


def _size(panel: Panel, rows: int) -> None:
    """Give a panel its rows; without any it is hidden."""
    panel.display = rows > 0
    panel.styles.height = rows
