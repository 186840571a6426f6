"""The profiles page: choose, switch, mark A and B, pull, release, and explain a profile."""

from __future__ import annotations

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
from sparkdash.tui.widgets.panel import RowMoved
from sparkdash.tui.widgets.profiles import ProfileDetail, ProfileTable
from sparkdash.units import GIB

AGAIN_S = 5.0
"""Least interval between two reads of the local files while the cursor moves."""


class ProfilesPage(Page):
    """Page of all profiles; Enter and s switch to the one under the cursor."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "switch", "switch", show=False),
        Binding("a", "mark('A')", "mark as A", show=False),
        Binding("b", "mark('B')", "mark as B", show=False),
        Binding("space", "mark_next", "mark", show=False),
        Binding("p", "give('pull')", "pull", show=False),
        Binding("P", "give('pin')", "pin", show=False),
        Binding("L", "give('preload')", "preload", show=False),
        Binding("E", "give('edit')", "edit", show=False),
        Binding("d", "give('dry_run')", "dry run", show=False),
        Binding("w", "give('why')", "why", show=False),
        Binding("u", "give('release')", "release", show=False),
        Binding("r", "app.order('reload')", "reload", show=False),
        Binding("S", "stop", "stop", show=False),
    ]

    title_key = "profiles"
    keys = "⏎ switch  a b mark  A measure  w why  p pull  E edit  d dry run  P pin  L preload  / find  ? help"
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
            self._look(table.cursor, view)

    def on_screen_resume(self) -> None:
        self._listed = (None, None)
        self._read_kept()

    def on_row_moved(self, message: RowMoved) -> None:
        if self.services.view.here - self._looked_at >= AGAIN_S:
            self._stock()
        self._look(message.key, self.services.view)

    def action_switch(self) -> None:
        self.query_one(ProfileTable).action_choose()

    def action_mark(self, side: Side) -> None:
        if name := self.query_one(ProfileTable).cursor:
            self.services.orders.mark(name, side)

    def action_mark_next(self) -> None:
        snapshot = self.services.view.snapshot
        taken = snapshot is not None and snapshot.toggle_a not in (None, self.query_one(ProfileTable).cursor)
        self.action_mark("B" if taken else "A")

    def action_give(self, order: str) -> None:
        """Give an order for the profile under the cursor."""
        if name := self.query_one(ProfileTable).cursor:
            getattr(self.services.orders, order)(name)

    def action_stop(self) -> None:
        """Stop the engine under the cursor; if none runs there, the engine on the card."""
        snapshot, name = self.services.view.snapshot, self.query_one(ProfileTable).cursor
        runs = snapshot is not None and name in snapshot.engines
        self.services.orders.stop(name if runs else None)

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
        except SparkdashError:  # a demo has no config.toml
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
    """Return everything that a plan depends on.

    Memory counts in steps of 2 GiB, so that a busy box is not asked every second.
    """
    if snapshot is None:
        return None
    memory = snapshot.sample.memory if snapshot.sample else None
    residents = tuple((engine.profile, engine.state) for engine in snapshot.engines.values())
    return residents, tuple(swap.id for swap in snapshot.swaps_under_way), memory and memory.available // (2 * GIB)
