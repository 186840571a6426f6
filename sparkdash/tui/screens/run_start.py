"""Dialog that starts an A/B run of the two marked profiles: choices, plan with its time, then begin.

Owns: what is chosen, and when the plan is asked for. Must not know: how a run is planned or measured.
Rule: nothing begins before the plan of exactly this choice was shown.
"""

from __future__ import annotations

from typing import ClassVar, cast

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen

from sparkdash.api.answers import BenchPlan
from sparkdash.errors import SparkdashError
from sparkdash.tui.ink import Line
from sparkdash.tui.lines.run_plan_lines import CHOICES, RunChoice, choice_lines
from sparkdash.tui.mirror import View
from sparkdash.tui.screens.dialog import DialogText
from sparkdash.tui.widgets.panel import AppServices

PAUSE_S = 0.4
"""Time after a change before the plan is asked for: each plan is a process of its own."""
KEYS = (("⏎", "start"), ("j k", "row"), ("h l", "value"), ("X", "swaps A and B"), ("y", "copy"), ("esc", "back"))


class RunStart(ModalScreen[bool]):
    """Modal dialog; its result is whether a run was begun."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,n", "leave", "leave", show=False),
        Binding("j,down", "row(1)", "next row", show=False),
        Binding("k,up", "row(-1)", "row above", show=False),
        Binding("l,right,space", "turn(1)", "next value", show=False),
        Binding("h,left", "turn(-1)", "value before", show=False),
        Binding("X", "swap_sides", "swap A and B", show=False),
        Binding("y", "copy", "copy the command", show=False),
        Binding("enter", "start", "start", show=False),
    ]

    def __init__(self, a: str, b: str) -> None:
        super().__init__()
        self.choice = RunChoice((a, b))
        self.plan: BenchPlan | None = None
        self._known: BenchPlan | None = None
        """Latest plan of any choice: it lists the suites."""
        self._row = 0
        self._problem: str | None = None
        self._words = DialogText("A/B run", self._lines, KEYS)

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

    def _lines(self, width: int) -> list[Line]:
        suites = self._known.suites if self._known else ()
        about = next((one.about for one in suites if one.name == self.choice.suite), "")
        return choice_lines(self.choice, CHOICES[self._row], self._problem or self.plan, about, width)

    def action_row(self, by: int) -> None:
        """Move to another row."""
        self._row = (self._row + by) % len(CHOICES)
        self._words.redraw()

    def action_turn(self, by: int) -> None:
        """Change the value of the row."""
        suites = tuple(one.name for one in self._known.suites) if self._known else ()
        self._choose(self.choice.turned(CHOICES[self._row], by, suites))

    def action_swap_sides(self) -> None:
        """Make B the baseline."""
        a, b = self.choice.profiles
        self._choose(RunChoice((b, a), self.choice.suite, self.choice.mode, self.choice.reps))

    def action_copy(self) -> None:
        """Copy the command that does the same."""
        self.app.copy_to_clipboard(self.choice.command)
        self._services.say(f"Copied: {self.choice.command}")

    def action_leave(self) -> None:
        """Begin nothing."""
        self.dismiss(False)

    def action_start(self) -> None:
        """Begin the run whose plan is shown."""
        if self.plan is not None:
            self._begin()

    def _choose(self, choice: RunChoice) -> None:
        if choice != self.choice:
            self.choice, self.plan, self._problem = choice, None, None
            self._words.redraw()
            self.set_timer(PAUSE_S, self._ask)

    @work(group="plan", exclusive=True)
    async def _ask(self) -> None:
        choice = self.choice
        if self.plan is not None:
            return
        try:
            plan = await self._told(choice, begin=False)
        except SparkdashError as error:
            if choice == self.choice:
                self._problem = error.text()
        else:
            self._known = plan
            if choice == self.choice:
                self.plan = plan
        self.on_resize()
        self._words.redraw()

    @work(group="begin", exclusive=True)
    async def _begin(self) -> None:
        try:
            await self._told(self.choice, begin=True)
        except SparkdashError as error:
            self.plan, self._problem = None, error.text()
            self._words.redraw()
        else:
            self.dismiss(True)

    async def _told(self, choice: RunChoice, *, begin: bool) -> BenchPlan:
        return await self._services.link.start_run(
            profiles=list(choice.profiles), suite=choice.suite, mode=choice.mode, reps=choice.reps, begin=begin
        )
