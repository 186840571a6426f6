"""The profiles page: choose, switch, mark A and B, pull, release, and explain a profile."""

from collections.abc import Iterable
from typing import ClassVar

from textual import work
from textual.binding import Binding, BindingType
from textual.widget import Widget

from sparkdash.domain.state import Snapshot
from sparkdash.domain.swap import Plan
from sparkdash.errors import SparkdashError
from sparkdash.tui.mirror import View
from sparkdash.tui.orders import Side
from sparkdash.tui.screens.page import Page
from sparkdash.tui.widgets.panel import RowChosen, RowMoved
from sparkdash.tui.widgets.profiles import HEADING, ProfileDetail, ProfileTable
from sparkdash.units import GIB

AGAIN_S = 5.0
"""Least interval between two reads of the local files while the cursor moves."""


class ProfilesPage(Page):
    """Page of all profiles; s switches to the one under the cursor, Enter describes it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "give('switch')", "switch to the profile"),
        Binding("a", "mark('A')", "mark the profile as A"),
        Binding("b", "mark('B')", "mark the profile as B"),
        Binding("p", "give('pull')", "pull its image and weights"),
        Binding("P", "give('pin')", "pin it, or not"),
        Binding("L", "give('preload')", "preload it, or not"),
        Binding("left", "fold", "fold the section"),
        Binding("e", "give('edit')", "edit its file"),
        Binding("d", "give('dry_run')", "dry run: the command that starts it"),
        Binding("u", "give('release')", "release the parked profile"),
        Binding("r", "app.order('reload')", "read the profile files again"),
    ]

    title_key = "profiles"
    keys = (
        "s switch  ⏎ describe  a b mark  A measure  e edit  p pull  x end  d dry run  P pin  L preload  / find  ? help"
    )
    _asked: object = None
    """Profile, link state and state of the box for which the plan was read."""
    _listed: tuple[object, object] = (None, None)
    _noticed: object = None
    """Latest notice when pins were read: an edit of config.toml comes with one."""
    _looked_at = 0.0

    def body(self) -> Iterable[Widget]:
        yield ProfileTable()
        yield ProfileDetail()

    def show(self, view: View) -> None:
        super().show(view)
        listed = (view.connection, view.snapshot.profiles if view.snapshot else None)
        if self.is_current and (listed[0] is not self._listed[0] or listed[1] is not self._listed[1]):
            self._listed = listed
            self._stock()
        noticed = next(iter(view.snapshot.notices), None) if view.snapshot else None
        if self.is_current and noticed is not self._noticed:
            self._noticed = noticed
            self._read_kept()
        for table in self.query(ProfileTable):
            self._look(table.profile, view)

    def on_screen_resume(self) -> None:
        self._listed = (None, None)
        self._read_kept()

    def on_row_moved(self, _message: RowMoved) -> None:
        if self.services.view.here - self._looked_at >= AGAIN_S:
            self._stock()
        self._look(self.query_one(ProfileTable).profile, self.services.view)

    def on_row_chosen(self, message: RowChosen) -> None:
        if message.key.startswith(HEADING):
            self.query_one(ProfileTable).fold(message.key)
        else:
            self.services.orders.describe(message.key)

    def action_fold(self) -> None:
        self.query_one(ProfileTable).fold_here()

    def action_mark(self, side: Side) -> None:
        if name := self.query_one(ProfileTable).profile:
            self.services.orders.mark(name, side)

    def action_give(self, order: str) -> None:
        if name := self.query_one(ProfileTable).profile:
            getattr(self.services.orders, order)(name)

    def end_what_is_here(self) -> None:
        if name := self.query_one(ProfileTable).profile:
            self.services.orders.end(name)

    def _look(self, name: str | None, view: View) -> None:
        detail = self.query_one(ProfileDetail)
        if detail.chosen != name:
            detail.chosen = name
            detail.redraw()
        asked = (name or "", view.connection, _world(view.snapshot))
        if name and asked != self._asked:
            self._asked = asked
            self.run_worker(self._plan(name), group="plan", exclusive=True)

    @work(group="stock", exclusive=True)
    async def _stock(self) -> None:
        self._looked_at = self.services.view.here
        try:
            stock = (await self.services.daemon.inventory()).stock
        except SparkdashError:  # not known, then
            return
        self.query_one(ProfileTable).stock = self.query_one(ProfileDetail).stock = stock
        self.query_one(ProfileTable).redraw()
        self.query_one(ProfileDetail).redraw()

    @work(group="kept", exclusive=True)
    async def _read_kept(self) -> None:
        table = self.query_one(ProfileTable)
        try:
            known = await self.services.daemon.settings()
        except SparkdashError:  # not known, then
            return
        table.pinned, table.preload = known.pinned, known.preload
        table.redraw()

    async def _plan(self, name: str) -> None:
        plan: Plan | None
        try:
            plan = await self.services.daemon.plan(name=name)
        except SparkdashError:
            plan = None
        detail = self.query_one(ProfileDetail)
        detail.plan = plan
        detail.redraw()


def _world(snapshot: Snapshot | None) -> object:
    """Return what a plan depends on; memory counts in steps of 2 GiB, so that a busy box is not asked every second."""
    if snapshot is None:
        return None
    memory = snapshot.sample.memory if snapshot.sample else None
    residents = tuple((engine.profile, engine.state) for engine in snapshot.engines.values())
    return residents, tuple(swap.id for swap in snapshot.swaps_under_way), memory and memory.available // (2 * GIB)
