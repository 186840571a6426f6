"""Lines of the dialog that starts an A/B run: the choices, the plan, the command.

Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

from sparkdash.api.answers import BenchPlan, PlannedArm
from sparkdash.api.requests import BenchModeName
from sparkdash.tui.ink import EMPTY, Ink, Line, highlighted, inked, pad, wrap, wrap_line
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

    def turned(self, row: str, by: int, suites: tuple[str, ...]) -> RunChoice:
        """Return the choice with the next value of one row."""
        if row == "suite":
            return replace(self, suite=_next(suites or (self.suite,), self.suite, by))
        if row == "mode":
            return replace(self, mode=_next(tuple(MODES), self.mode, by))
        return replace(self, reps=_next(REPEATS, self.reps, by))

    @property
    def command(self) -> str:
        """The same in a shell."""
        reps = f" --reps {self.reps}" if self.reps else ""
        return f"sparkdash ab {' '.join(self.profiles)} --suite {self.suite} --mode {self.mode}{reps}"


def _next(values: tuple[T, ...], now: T, by: int) -> T:
    at = values.index(now) if now in values else 0
    return values[(at + by) % len(values)]


def choice_lines(choice: RunChoice, row: str, told: BenchPlan | str | None, about: str, width: int) -> list[Line]:
    """Format the choices with the cursor on `row`; below them what is told: the plan, or why there is none.

    `about` describes the chosen suite.
    """
    a, b = choice.profiles
    lines = [
        _told("A", inked(a, Ink.STRONG) + inked("  the baseline", Ink.DIM)),
        _told("B", inked(b, Ink.STRONG)),
        EMPTY,
    ]
    reps = inked(f"{choice.reps} per cell and launch") if choice.reps else inked("those of the suite", Ink.DIM)
    values = {
        "suite": inked(choice.suite, Ink.STRONG) + inked(f"  {about}", Ink.DIM),
        "mode": inked(choice.mode, Ink.STRONG) + inked(f"  {MODES[choice.mode]}", Ink.DIM),
        "repeats": reps,
    }
    for name in CHOICES:
        line = pad(_told(name, values[name], "▸ " if name == row else "  "), width)
        lines.append(highlighted(line) if name == row else line)
    lines.append(EMPTY)
    if isinstance(told, str):
        lines += wrap(told, width, Ink.BAD)
    else:
        lines += _plan_lines(told, width) if told else [inked("  the plan is made…", Ink.DIM)]
    return [*lines, EMPTY, *_wrapped("command", inked(choice.command, Ink.DIM), width)]


def _plan_lines(plan: BenchPlan, width: int) -> list[Line]:
    letters = {arm.name: letter for letter, arm in zip("ABCDEFGHIJKLMNOPQRSTUVWXYZ", plan.arms, strict=False)}
    order = " ".join(letters.get(name, "?") for name in plan.order)
    sim = inked("SIM ", Ink.WARN) if plan.simulated else EMPTY
    launches = f"{len(plan.order)} launch{'' if len(plan.order) == 1 else 'es'}"
    drawn = "" if plan.resumes or plan.mode == "screen" or len(plan.arms) == 1 else ", such as"
    what = f"{launches}{drawn} {order}, {counted(plan.cells, 'cell')} each, {plan.gaps} to measure"
    lines = _wrapped("plan", sim + inked(what), width)
    lines += _wrapped("time", _time(plan), width)
    lines += [line for arm in plan.arms for line in _arm_lines(arm, letters.get(arm.name, ""), width)]
    if plan.resumes:
        lines += _wrapped("goes on", inked(f"with {plan.resumes}, which was stopped"), width)
    if plan.stops:
        stops = inked(", ".join(plan.stops), Ink.STRONG) + inked("; what serves now comes back at the end", Ink.DIM)
        lines += _wrapped("stops", stops, width)
    return [*lines, *_wrapped("clients", inked("get 503 with Retry-After meanwhile", Ink.DIM), width)]


def _time(plan: BenchPlan) -> Line:
    if plan.expected_s is None:
        return inked("known after the first launch", Ink.DIM)
    known = ", ".join(sorted({f"rates {arm.source}" for arm in plan.arms if arm.source}))
    about = "~" if any(arm.estimated for arm in plan.arms) else "about "
    return inked(f"{about}{duration(plan.expected_s)}", Ink.STRONG) + inked(f"  from {known}", Ink.DIM)


def _arm_lines(arm: PlannedArm, letter: str, width: int) -> list[Line]:
    """Say why an arm cannot run, or how long its load takes; nothing while that is unknown."""
    if arm.impossible:
        return _wrapped("cannot", inked(f"{arm.name}: {arm.impossible}", Ink.WARN), width)
    known = arm.launch_s is not None
    return _wrapped(f"load {letter}", inked(f"about {duration(arm.launch_s)}", Ink.DIM), width) if known else []


def _told(label: str, value: Line, mark: str = "  ") -> Line:
    return inked(f"{mark}{label:<{LABEL}}", Ink.DIM) + value


def _wrapped(label: str, value: Line, width: int) -> list[Line]:
    rows = wrap_line(value, width - LABEL - 2)
    return [_told(label if not at else "", row) for at, row in enumerate(rows)]
