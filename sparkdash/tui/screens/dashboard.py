"""The dashboard page: one large engine, the others, memory, GPU, requests; in two columns also what was before."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import ClassVar

from textual import events, work
from textual.app import SuspendNotSupported
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widget import Widget

from sparkdash.errors import SparkdashError
from sparkdash.tui.choices import HeroChoice
from sparkdash.tui.first_run import RunningServer, fitting, on_disk
from sparkdash.tui.layout import Contents, Heights, has_two_columns, heights, left_cells
from sparkdash.tui.mirror import ConnectionState, View
from sparkdash.tui.screens.page import Page
from sparkdash.tui.widgets.card import EngineCard, Residents, others
from sparkdash.tui.widgets.gpu import GpuRow, PowerPanel
from sparkdash.tui.widgets.log import LogPanel
from sparkdash.tui.widgets.memory import MemoryBar
from sparkdash.tui.widgets.panel import Panel, RowChosen
from sparkdash.tui.widgets.profiles import ProfileTable
from sparkdash.tui.widgets.requests import RequestTable
from sparkdash.tui.widgets.swaps import SwapTable
from sparkdash.tui.widgets.usage import TodayPanel, WeeksChart


class FirstRunPage(Page):
    """Page with the keys of a box where nothing runs. While an engine runs or loads the keys do nothing."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("p", "idle_profiles", "profiles that fit"),
        Binding("a", "idle_attach", "attach the server that runs"),
        Binding("c", "idle_copy", "copy a recipe"),
        Binding("d", "idle_run('demo')", "simulated box"),
        Binding("i", "idle_run('setup')", "set this box up"),
    ]

    _looked = False
    _copied = -1
    """Index of the client whose recipe was copied last."""

    def show(self, view: View) -> None:
        """Draw the view; look at the box once, when nothing runs on it."""
        super().show(view)
        if not self._looked and self.is_current and _is_idle(view):
            self._looked = True
            self._look()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action.startswith("idle_"):
            return _is_idle(self.services.view)
        return super().check_action(action, parameters)

    def action_idle_attach(self) -> None:
        server = self.services.view.idle.server
        if server is None:
            self.services.say("No other server was found on this box.")
        elif server.attached:
            self.services.orders.switch(server.profiles[0])
        else:
            self._attach_server(server)

    def action_idle_copy(self) -> None:
        """Copy the recipe of an installed client, of the next one when pressed again; without one, the address."""
        idle, view = self.services.view.idle, self.services.view
        clients = idle.found.clients if idle.found else ()
        if clients:
            self._copied = (self._copied + 1) % len(clients)
            self._copy_recipe(clients[self._copied])
        elif view.snapshot is not None:
            self.app.copy_to_clipboard(view.snapshot.daemon.url)
            self.services.say(f"Copied {view.snapshot.daemon.url}.")

    def action_idle_run(self, command: str) -> None:
        box = self.services.box
        if box is None:
            return
        try:
            with self.app.suspend():
                box.run_command(command)
        except SuspendNotSupported:
            self.services.say(f"This terminal cannot be left: type `sparkdash {command}` in another one.", bad=True)
            return
        self.app.refresh()
        self._look()

    @work(group="first look", exclusive=True)
    async def _look(self) -> None:
        """Learn what the box has, the quickest answer first; an answer that does not come leaves its offer out."""
        services, box = self.services, self.services.box
        idle = replace(services.view.idle, looking=True, can_run_commands=box is not None)
        services.set_idle(idle)
        with suppress(SparkdashError):
            idle = replace(idle, stock=(await services.daemon.inventory()).stock)
            services.set_idle(idle)
        snapshot = services.view.snapshot
        if box is not None and snapshot is not None:
            with suppress(SparkdashError):
                idle = replace(idle, found=await box.look(snapshot.profiles))
                services.set_idle(idle)
        with suppress(SparkdashError):  # the demo has no doctor
            idle = replace(idle, findings=(await services.daemon.doctor()).findings)
        services.set_idle(replace(idle, looking=False))

    @work(group="first look", exclusive=True)
    async def _attach_server(self, server: RunningServer) -> None:
        services = self.services
        if services.box is None:
            return
        try:
            names = await services.box.attach(server)
            await services.daemon.reload()
        except SparkdashError as error:
            services.say(f"{error.message} {error.hint or ''}".rstrip(), bad=True)
            return
        idle = services.view.idle
        if idle.found is not None:
            others = tuple(one for one in idle.found.servers if one is not server)
            attached = replace(server, attached=True)
            found = replace(idle.found, servers=(*others, attached))
            services.set_idle(replace(idle, found=found, looking=False))
        services.say(f"Profiles written: {', '.join(names)}.")
        services.orders.switch(server.profiles[0])

    @work(group="recipe", exclusive=True)
    async def _copy_recipe(self, client: str) -> None:
        services = self.services
        if services.box is None:
            return
        try:
            text = await services.box.recipe(client, self._first_profile())
        except SparkdashError as error:
            services.say(f"{error.message} {error.hint or ''}".rstrip(), bad=True)
            return
        self.app.copy_to_clipboard(text)
        services.say(f"Copied what {client} needs; `sparkdash connect {client} --write` writes it.")

    @work(group="first profile", exclusive=True)
    async def action_idle_profiles(self) -> None:
        """Open the profiles at the one to begin with: on disk, else the first that fits."""
        snapshot = self.services.view.snapshot
        found = fitting(snapshot) if snapshot else None
        first = self._first_profile() or (found[0].name if found else None)
        await self.app.switch_mode("profiles")
        for table in self.app.screen.query(ProfileTable):
            if first is not None:
                table.move_to(first)

    def _first_profile(self) -> str | None:
        """Return a profile that is ready here: of a server that runs, else with its weights on disk."""
        view = self.services.view
        server = view.idle.server
        if server is not None and server.attached:
            return server.profiles[0]
        found = on_disk(fitting(view.snapshot) or [], view.idle.stock) if view.snapshot else []
        return found[0].name if found else None


def _is_idle(view: View) -> bool:
    """Whether the offers are shown: a daemon answers, and no engine runs, loads or has just failed."""
    is_told = view.snapshot is not None and view.connection is ConnectionState.LIVE
    return is_told and view.engine is None and view.swap is None


AGAIN_S = 2.0
POINTS = 360
"""Buckets asked for: more than the dot columns of most charts."""


class DashboardPage(FirstRunPage):
    """Page of one column, or of two from TWO_COLUMNS_FROM terminal columns on."""

    title_key = "dashboard"
    keys = "s switch  x end  / find  f large  e each  ⏎ open  [ ] window  v layout  h history  ? help"
    AUTO_FOCUS = "RequestTable"

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("e", "each", "large figure: each request, or all together"),
        Binding("left_square_bracket", "window(-1)", "window: shorter"),
        Binding("right_square_bracket", "window(1)", "window: longer"),
        Binding("h", "history", "the large chart in the history"),
        Binding("v", "arrange", "next layout: all panels, the large figure, or rows"),
    ]

    _read_at = 0.0
    """When a recorded series was last asked for, on this terminal's clock."""
    _shared: tuple[int, int, Heights, Contents] | None = None
    """Size of the terminal, and the heights that the panels have now for what they show."""

    def body(self) -> Iterable[Widget]:
        self._memory, self._gpu = MemoryBar(), GpuRow()
        figures = (EngineCard(), Residents(), self._memory, self._gpu, PowerPanel())
        left = Vertical(*figures, SwapTable(beside=True), id="left")
        right = Vertical(RequestTable(beside=True), TodayPanel(), WeeksChart(), LogPanel(), id="right")
        yield Widget(left, right, id="dashboard")

    def show(self, view: View) -> None:
        self._share(view)
        super().show(view)
        self._read_window(view)

    def on_row_chosen(self, message: RowChosen) -> None:
        if self.query_one(SwapTable).has_focus:
            self.services.orders.open_swap(message.key)
        else:
            self._open_request(message.key)

    @work(group="request", exclusive=True)
    async def _open_request(self, ident: str) -> None:
        await self.app.switch_mode("requests")
        self.app.screen.query_one(RequestTable).move_to(ident)

    def end_what_is_here(self) -> None:
        """End the request under the cursor; without one the load under way, else the large engine."""
        if ident := self.query_one(RequestTable).cursor:
            self.services.orders.cancel_request(ident)
        else:
            super().end_what_is_here()

    def action_each(self) -> None:
        hero = self.services.view.hero
        self._choose(replace(hero, is_each=not hero.is_each, series=None))
        self.services.say(
            "The large figure is all requests together."
            if hero.is_each
            else "The large figure is that of each request."
        )

    def action_window(self, by: int) -> None:
        hero = self.services.view.hero
        chosen = replace(hero, window_s=hero.stepped(by), series=None)
        self._choose(chosen)
        self.services.say(f"The chart shows: {chosen.window_name}.")

    def action_history(self) -> None:
        if engine := self.services.view.engine:
            self.services.open_history(self.services.view.hero.metric.value, engine.profile)
        else:
            self.services.say("No engine runs.")

    def action_arrange(self) -> None:
        self.services.arrange(self.services.view.arrangement.after)

    def _choose(self, hero: HeroChoice) -> None:
        self._read_at = 0.0
        self.services.choose_hero(hero)

    def _read_window(self, view: View) -> None:
        engine = view.engine
        due = view.here - self._read_at >= AGAIN_S and view.connection is ConnectionState.LIVE
        if engine and due and self.is_current and view.hero.wants(engine.profile, view.now):
            self._read_at = view.here
            self._read_series(engine.profile, view)

    @work(group="window", exclusive=True)
    async def _read_series(self, profile: str, view: View) -> None:
        hero = view.hero
        try:
            series = await self.services.daemon.history_series(
                figure=hero.metric.value, profile=profile, since=view.now - hero.window_s, until=view.now, points=POINTS
            )
        except SparkdashError as error:
            self.services.say(error.text(), bad=True)
            return
        now = self.services.view.hero
        if (now.is_each, now.window_s) == (hero.is_each, hero.window_s):
            self.services.choose_hero(replace(now, series=series))

    def on_resize(self, _event: events.Resize) -> None:
        self._share(self.services.view)

    def _share(self, view: View) -> None:
        if not self.is_mounted:
            return  # it is being made or taken apart
        columns, rows = self.app.size
        two = has_two_columns(columns, rows, view.arrangement)
        inner = left_cells(columns) if two else columns
        wanted = self._contents(view, inner)
        shared = heights(columns, rows, wanted, view.arrangement)
        if (columns, rows, shared, wanted) == self._shared:
            return
        self._shared = (columns, rows, shared, wanted)
        self._memory.chart_rows = shared.memory_chart
        _size(self._memory, wanted.memory + shared.memory_chart)
        _size(self._gpu, wanted.gpu)
        self.query_one("#left").styles.width = inner if two else "1fr"
        self.query_one("#left").styles.height = "1fr" if two else "auto"
        self.query_one("#dashboard").styles.layout = "horizontal" if two else "vertical"
        _size(self.query_one(EngineCard), shared.card)
        _size(self.query_one(Residents), shared.beside)
        _size(self.query_one(SwapTable), shared.swaps)
        _size(self.query_one(RequestTable), shared.requests)
        _size(self.query_one(LogPanel), shared.log)
        _size(self.query_one(PowerPanel), shared.power)
        _size(self.query_one(TodayPanel), shared.today)
        _size(self.query_one(WeeksChart), shared.weeks)
        self.query_one("#right").display = shared.requests > 0

    def _contents(self, view: View, width: int) -> Contents:
        return Contents(
            beside=len(others(view)),
            memory=self._memory.rows_without_chart(view, width),
            gpu=self._gpu.rows(view),
            charted=self._memory.has_chart(view),
        )


def _size(panel: Panel, rows: int) -> None:
    panel.display = rows > 0
    panel.styles.height = rows
