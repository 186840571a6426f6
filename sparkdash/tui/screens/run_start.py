"""Dialog that starts an A/B run of the two marked profiles: choices, plan with its time, then begin.

Rule: nothing begins before the plan of exactly this choice was shown.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, TypeVar

from textual.binding import Binding, BindingType

from sparkdash.api.answers import BenchPlan, PlannedArm
from sparkdash.api.requests import BenchModeName
from sparkdash.tui.screens.dialog import PlanDialog
from sparkdash.tui.text import EMPTY, Line, Style, highlighted, pad, styled, wrap, wrap_line
from sparkdash.units import counted, duration

T = TypeVar("T")
LABEL = 10
MODES: dict[BenchModeName, str] = {
    "screen": "A B: a first look that claims nothing",
    "standard": "3 launches each: verdicts",
    "careful": "4 launches each: verdicts on small differences",
}
REPEATS = (None, 3, 5, 8, 12, 20)
"""Repetitions per cell and launch; None: those of the suite and the mode."""
CHOICES = ("suite", "mode", "repeats")


@dataclass(frozen=True, slots=True)
class RunChoice:
    """Choices made in the dialog."""

    profiles: tuple[str, str]
    suite: str = "smoke"
    mode: BenchModeName = "standard"
    reps: int | None = None

    def turned(self, row: str, by: int, suites: tuple[str, ...]) -> "RunChoice":
        if row == "suite":
            return replace(self, suite=_next(suites or (self.suite,), self.suite, by))
        if row == "mode":
            return replace(self, mode=_next(tuple(MODES), self.mode, by))
        return replace(self, reps=_next(REPEATS, self.reps, by))

    @property
    def command(self) -> str:
        reps = f" --reps {self.reps}" if self.reps else ""
        return f"sparkdash ab {' '.join(self.profiles)} --suite {self.suite} --mode {self.mode}{reps}"


def _next(values: tuple[T, ...], now: T, by: int) -> T:
    at = values.index(now) if now in values else 0
    return values[(at + by) % len(values)]


def choice_lines(
    choice: RunChoice, row: str, told: BenchPlan | str | None, about: str, thinking: str, width: int
) -> list[Line]:
    """Format the choices with the cursor on `row`; below them what is told: the plan, or why there is none.

    `about` describes the chosen suite.
    """
    a, b = choice.profiles
    lines = [
        _told("A", styled(a, Style.STRONG) + styled("  the baseline", Style.DIM)),
        _told("B", styled(b, Style.STRONG)),
        EMPTY,
    ]
    reps = styled(f"{choice.reps} per cell and launch") if choice.reps else styled("those of the suite", Style.DIM)
    values = {
        "suite": styled(choice.suite, Style.STRONG) + styled(f"  {about}", Style.DIM),
        "mode": styled(choice.mode, Style.STRONG) + styled(f"  {MODES[choice.mode]}", Style.DIM),
        "repeats": reps,
    }
    for name in CHOICES:
        line = pad(_told(name, values[name], "▸ " if name == row else "  "), width)
        lines.append(highlighted(line) if name == row else line)
    lines.append(EMPTY)
    if isinstance(told, str):
        lines += wrap(told, width, Style.BAD)
    else:
        lines += _plan_lines(told, width) if told else [styled(f"  {thinking}", Style.DIM)]
    return [*lines, EMPTY, *_wrapped("command", styled(choice.command, Style.DIM), width)]


def _plan_lines(plan: BenchPlan, width: int) -> list[Line]:
    letters = {arm.name: letter for letter, arm in zip("ABCDEFGHIJKLMNOPQRSTUVWXYZ", plan.arms, strict=False)}
    order = " ".join(letters.get(name, "?") for name in plan.order)
    sim = styled("SIM ", Style.WARN) if plan.simulated else EMPTY
    launches = f"{len(plan.order)} launch{'' if len(plan.order) == 1 else 'es'}"
    drawn = "" if plan.resumes or plan.mode == "screen" or len(plan.arms) == 1 else ", such as"
    what = f"{launches}{drawn} {order}, {counted(plan.cells, 'cell')} each, {plan.gaps} to measure"
    lines = _wrapped("plan", sim + styled(what), width)
    lines += _wrapped("time", _time(plan), width)
    lines += [line for arm in plan.arms for line in _arm_lines(arm, letters.get(arm.name, ""), width)]
    if plan.note:
        lines += _wrapped("note", styled(plan.note), width)
    if plan.resumes:
        lines += _wrapped("goes on", styled(f"with {plan.resumes}, which was stopped"), width)
    if plan.stops:
        stops = styled(", ".join(plan.stops), Style.STRONG) + styled(
            "; what serves now comes back at the end", Style.DIM
        )
        lines += _wrapped("stops", stops, width)
    return [*lines, *_wrapped("clients", styled("get 503 with Retry-After meanwhile", Style.DIM), width)]


def _time(plan: BenchPlan) -> Line:
    if plan.expected_s is None:
        return styled("known after the first launch", Style.DIM)
    known = ", ".join(sorted({f"rates {arm.source}" for arm in plan.arms if arm.source}))
    about = "~" if any(arm.estimated for arm in plan.arms) else "about "
    return styled(f"{about}{duration(plan.expected_s)}", Style.STRONG) + styled(f"  from {known}", Style.DIM)


def _arm_lines(arm: PlannedArm, letter: str, width: int) -> list[Line]:
    """Say why an arm cannot run, or how long its load takes; nothing while that is unknown."""
    if arm.impossible:
        return _wrapped("cannot", styled(f"{arm.name}: {arm.impossible}", Style.WARN), width)
    known = arm.launch_s is not None
    return _wrapped(f"load {letter}", styled(f"about {duration(arm.launch_s)}", Style.DIM), width) if known else []


def _told(label: str, value: Line, mark: str = "  ") -> Line:
    return styled(f"{mark}{label:<{LABEL}}", Style.DIM) + value


def _wrapped(label: str, value: Line, width: int) -> list[Line]:
    rows = wrap_line(value, width - LABEL - 2)
    return [_told(label if not at else "", row) for at, row in enumerate(rows)]


KEYS = (("⏎", "start"), ("j k", "row"), ("h l", "value"), ("y", "copy"), ("esc", "back"))


class RunStart(PlanDialog[bool, BenchPlan]):
    """Modal dialog; its result is whether a run was begun."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,n", "leave", "leave"),
        Binding("j,down", "row(1)", "next row"),
        Binding("k,up", "row(-1)", "row above"),
        Binding("l,right,space", "turn(1)", "next value"),
        Binding("h,left", "turn(-1)", "value before"),
        Binding("y", "copy", "copy the command"),
        Binding("enter", "begin", "start"),
    ]
    pause_s = 0.4  # each plan is a process of its own

    def __init__(self, a: str, b: str) -> None:
        super().__init__("A/B run", self._lines, KEYS)
        self.choice = RunChoice((a, b))
        self._known: BenchPlan | None = None
        """Latest plan of any choice: it lists the suites."""
        self._row = 0

    def _lines(self, width: int) -> list[Line]:
        suites = self._known.suites if self._known else ()
        about = next((one.about for one in suites if one.name == self.choice.suite), "")
        told = None if self.is_busy else self.problem or self.plan
        return choice_lines(self.choice, CHOICES[self._row], told, about, self.thinking, width)

    def action_row(self, by: int) -> None:
        self._row = (self._row + by) % len(CHOICES)
        self.text.redraw()

    def action_turn(self, by: int) -> None:
        suites = tuple(one.name for one in self._known.suites) if self._known else ()
        self._choose(self.choice.turned(CHOICES[self._row], by, suites))

    def action_copy(self) -> None:
        self.app.copy_to_clipboard(self.choice.command)
        self.services.say(f"Copied: {self.choice.command}")

    def _choose(self, choice: RunChoice) -> None:
        if choice != self.choice and not self.is_busy:
            self.choice = choice
            self.replan()

    def chosen(self) -> RunChoice:
        return self.choice

    async def planned(self) -> BenchPlan:
        self._known = await self._told(begin=False)
        return self._known

    def may_begin(self, plan: BenchPlan) -> bool:  # noqa: ARG002 - the daemon refuses what cannot run
        return True

    def stops(self, plan: BenchPlan) -> bool:
        return bool(plan.stops)

    async def carry_out(self) -> None:
        await self._told(begin=True)
        self.dismiss(True)

    async def _told(self, *, begin: bool) -> BenchPlan:
        one = self.choice
        return await self.services.daemon.start_run(
            profiles=list(one.profiles), suite=one.suite, mode=one.mode, reps=one.reps, begin=begin
        )
