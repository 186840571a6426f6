"""Drawing of a state at several sizes: one app, resized."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import eager
from screen_oracle import Box, Looked
from textual import events
from textual.command import CommandPalette
from textual.geometry import Size
from textual.pilot import Pilot
from textual.screen import ModalScreen

from sparkdash.tui.app import SparkdashApp

AGREED_SIZES = ((60, 15), (80, 24), (160, 48))
"""A corner of a screen, a plain terminal, and a whole screen."""
MORE_SIZES = ((60, 24), (120, 40), (159, 45), (160, 40), (200, 60))
"""Sizes at which the oracle alone judges."""
FIRST = (120, 40)
"""Size at which the keys of a state are pressed."""


@dataclass(frozen=True)
class State:
    """State of a screen, and how it came to that."""

    told: Callable[[Any], Any]
    """The daemon's telling: the builders' world in, a snapshot, an error, or a tuple of items out."""
    keys: tuple[str, ...] = ()
    prepare: Callable[[Any, Any], None] | None = None
    """Fills the scripted link with the answers to what the screen asks: world and link in."""
    then: Callable[[Any], tuple[Any, ...]] | None = None
    """Items that are told once the keys are pressed."""
    later_s: float = 0.0
    """Time that passes after that."""
    until: str = ""
    """Text that the keys bring, where a worker brings it."""
    shows: tuple[str, ...] = ()
    """Texts that must be seen at every size."""
    act: Callable[[Any, Any], None] | None = None
    """Done to the app before the keys: app and link in."""
    look: Callable[[Any], Any] | None = None
    """Makes what looks at this box: world in, a BoxLook out."""


class Shot:
    """The app with a state on its screen."""

    def __init__(self, app: SparkdashApp, pilot: Pilot[None], daemon: Any, now: list[float]) -> None:
        self.app, self.pilot, self.daemon, self._now = app, pilot, daemon, now

    @property
    def lines(self) -> list[str]:
        return ["".join(segment.text for segment in strip) for strip in self.app.screen._compositor.render_strips()]

    async def settle(self) -> None:
        """Until nothing comes over the feed and the text stands still."""
        before: list[str] = []
        for _ in range(50):
            await self.pilot._wait_for_screen()
            self.app.screen._on_timer_update()  # Textual draws what changed by a timer
            now = self.lines
            if now == before and not self.daemon.items.qsize() and not self.app._paint_wanted:
                return
            before = now

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not true():
                await asyncio.sleep(0.01)
                await self.settle()

    async def resize(self, size: tuple[int, int]) -> None:
        if size == tuple(self.app.size):
            return
        assert self.app._driver is not None
        self.app._driver._size = Size(*size)
        self.app.post_message(events.Resize(Size(*size), Size(*size)))
        async with asyncio.timeout(30):
            while tuple(self.app.screen._compositor.size) != size:
                await self.pilot.pause()
        await self.settle()

    async def begin(self, state: State, box: Any) -> None:
        await self.settle()
        if state.act:
            state.act(self.app, self.daemon)
        for key in state.keys:
            await self.pilot.press(key)
            await self.settle()
        for item in state.then(box) if state.then else ():
            self.daemon.tell(item)
        await self.settle()
        if state.later_s:
            self._now[0] += state.later_s
            self.app.want_paint()
            await self.settle()
        if state.until:
            await self.until(lambda: state.until in " ".join(" ".join(self.lines).split()))

    def looked(self, size: tuple[int, int], shows: tuple[str, ...] = ()) -> Looked:
        snapshot, top = self.app.view.snapshot, self.app.screen
        over = None
        if isinstance(top, ModalScreen):
            shown = top.query("Input, OptionList") if isinstance(top, CommandPalette) else top.children
            regions = [child.region for child in shown if child.display and child.region.area]
            over = Box(
                min(one.y for one in regions), max(one.bottom for one in regions) - 1,
                min(one.x for one in regions), max(one.right for one in regions) - 1,
            )  # fmt: skip
        names: set[str] = set()
        if snapshot is not None:
            requests = (*snapshot.requests.values(), *snapshot.recent)
            names = {one.name for one in snapshot.profiles} | set(snapshot.engines) | {one.client for one in requests}
            names |= {one.profile for one in requests} | {row.group for row in self.daemon.usage.rows}
        return Looked(
            lines=self.lines, columns=size[0], rows=size[1], names=frozenset(names), over=over, shows=shows,
            engines=frozenset(snapshot.engines) if snapshot and over is None and _is_dashboard(top) else frozenset(),
            is_page=not isinstance(top, CommandPalette),
        )  # fmt: skip


def _is_dashboard(screen: Any) -> bool:
    return getattr(screen, "title_key", "") == "dashboard"


@asynccontextmanager
async def open_app(
    daemon: Any, now: list[float], size: tuple[int, int], *items: Any, box: Any = None, **options: Any
) -> AsyncIterator[tuple[SparkdashApp, Pilot[None]]]:
    """Open the app on a screen of this size once its daemon has told these items; `now` is its clock."""
    for item in items:
        if item is not None:
            daemon.tell(item)
    open_box = (lambda: box) if box else None
    app = SparkdashApp(lambda: daemon, daemon.address, clock=lambda: now[0], box=open_box, **options)
    asyncio.get_running_loop().set_task_factory(eager.factory)  # as Textual does for a person where Python is 3.12
    async with app.run_test(size=size) as pilot:
        yield app, pilot


@asynccontextmanager
async def shot(state: State, box: Any, daemon: Any, theme: str | None = None) -> AsyncIterator[Shot]:
    now = [box.now]
    if state.prepare:
        state.prepare(box, daemon)
    told = state.told(box)
    items = told if isinstance(told, tuple) else (told,)
    looks = state.look(box) if state.look else None
    async with open_app(daemon, now, FIRST, *items, paint_every_s=0.0, box=looks) as (app, pilot):
        if theme:
            app.action_look(theme)
        on = Shot(app, pilot, daemon, now)
        await on.begin(state, box)
        yield on
