"""Dialogs of one past request: its time line, and its replay on another profile.

Owns: what is chosen, and when plan and replay are asked for. Must not know how a request is replayed.
Rule: nothing is sent before the plan of exactly this choice was shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar, cast

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen

from sparkdash.domain.history import Replay, TimelineMark
from sparkdash.domain.lease import Request
from sparkdash.domain.state import Snapshot
from sparkdash.errors import SparkdashError
from sparkdash.tui.ink import Line
from sparkdash.tui.lines.replay_lines import SHOWN, choice_lines, outcome_lines, profiles_to_replay_on, waiting_lines
from sparkdash.tui.lines.request_timeline import timeline_lines
from sparkdash.tui.mirror import View
from sparkdash.tui.screens.dialog import Dialog, DialogText
from sparkdash.tui.widgets.panel import AppServices

PAUSE_S = 0.3
"""Time on a profile before its plan is asked for."""
CHOOSING = (("⏎", "replay"), ("j k", "profile"), ("esc", "back"))
WAITING, OVER = (("esc", "end the replay"),), (("⏎", "close"),)


class TimelineDialog(Dialog):
    """Time line of one request; its result is whether it is to be replayed."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("R", "answer(True)", "replay", show=False)]

    def __init__(self, one: Request, marks: Sequence[TimelineMark]) -> None:
        title, told = f"{one.client} · {one.profile} · {one.id}", partial(timeline_lines, one, marks)
        super().__init__(title, told)
        self._words = DialogText(title, told, (("R", "replay on another profile"), ("esc", "close")))


class ReplayDialog(ModalScreen[None]):
    """Modal dialog that replays a request: profile, plan, both answers' figures."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,n", "leave", "leave", show=False),
        Binding("j,down", "move(1)", "next profile", show=False),
        Binding("k,up", "move(-1)", "profile above", show=False),
        Binding("pagedown", "page(1)", "page down", show=False),
        Binding("pageup", "page(-1)", "page up", show=False),
        Binding("g,home", "go_to(0)", "first profile", show=False),
        Binding("G,end", "go_to(-1)", "last profile", show=False),
        Binding("enter", "begin", "replay", show=False),
    ]

    def __init__(self, request: Request, snapshot: Snapshot) -> None:
        super().__init__()
        self._request = request
        self._snapshot = snapshot
        self._names = profiles_to_replay_on(snapshot, request)
        self._at = 0
        self._told: Replay | str | None = None if self._names else "No profile can run here."
        self._is_busy = False
        self.done: Replay | None = None
        self._words = DialogText("replay", self._lines, CHOOSING)

    def compose(self) -> ComposeResult:
        """Yield the text."""
        yield self._words

    def on_mount(self) -> None:
        """Ask for the first plan."""
        self.on_resize()
        self._ask()

    def on_resize(self) -> None:
        """Set the width for the terminal's size."""
        self._words.styles.width = self._words.wanted(self.app.size.width)

    def show(self, view: View) -> None:
        """Do nothing: a dialog keeps its text."""

    @property
    def _services(self) -> AppServices:
        return cast("AppServices", self.app)

    @property
    def _profile(self) -> str:
        return self._names[self._at]

    def _lines(self, width: int) -> list[Line]:
        if self.done is not None:
            return outcome_lines(self.done, width)
        if self._is_busy:
            return waiting_lines(self._request, self._profile, width)
        return choice_lines(self._request, self._names, self._at, self._told, self._snapshot, width)

    def _redraw(self) -> None:
        self.on_resize()
        self._words.relabel(OVER if self.done is not None else WAITING if self._is_busy else CHOOSING)

    def action_leave(self) -> None:
        """Close the dialog; a replay under way ends with it."""
        self.dismiss()

    def action_move(self, by: int) -> None:
        """Move to another profile; beyond an end, on from the other."""
        if self._names:
            self.action_go_to((self._at + by) % len(self._names))

    def action_page(self, by: int) -> None:
        """Move by so many lists as are shown, as far as there are profiles."""
        self.action_go_to(max(0, min(self._at + by * SHOWN, len(self._names) - 1)))

    def action_go_to(self, place: int) -> None:
        """Move to the profile at this place; a negative one counts from the end."""
        if self._names and not self._is_busy and self.done is None:
            self._at, self._told = place % len(self._names), None
            self._words.redraw()
            self.set_timer(PAUSE_S, self._ask)

    def action_begin(self) -> None:
        """Begin the replay whose plan is shown; close the dialog once its outcome is."""
        if self.done is not None:
            self.dismiss()
        elif isinstance(self._told, Replay) and self._told.plan.fits is not False and not self._is_busy:
            self._is_busy = True
            self._redraw()
            self._replay(self._profile)

    @work(group="plan", exclusive=True)
    async def _ask(self) -> None:
        if self._told is not None or not self._names:
            return
        name = self._profile
        try:
            told: Replay | str = await self._services.link.replay(request=self._request.id, on=name)
        except SparkdashError as error:
            told = error.text()
        if name == self._profile and not self._is_busy:
            self._told = told
            self._redraw()

    @work(group="replay", exclusive=True)
    async def _replay(self, name: str) -> None:
        try:
            self.done = await self._services.link.replay(request=self._request.id, on=name, begin=True)
        except SparkdashError as error:
            self._told = error.text()
        self._is_busy = False
        self._redraw()
