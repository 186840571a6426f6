"""A start, taken apart: the seconds of each stage, by the lines of the engine's log and their own times. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from sparkdash.domain.engine import LoadProgress
from sparkdash.domain.profile import Profile
from sparkdash.domain.swap import Start, Step
from sparkdash.units import duration

PROCESS, IMPORTS, SERVER, FIRST_TOKEN = "process", "imports", "server", "first token"
_ALIKE = {"http": SERVER, "ready": SERVER}


class StartStages:
    """Stages of a start whose container began at `began` (monotonic seconds); `follows`: the stage after a silent end.

    Where it names none, the time up to the next line that names a stage belongs to that stage.
    """

    def __init__(self, began: float, follows: Mapping[str, str]) -> None:
        self._follows = follows
        self._marks: list[tuple[float, str | None]] = [(began, PROCESS)]
        """Time at which each stage began; None: the log names it later."""

    def heard(self, progress: LoadProgress | None, now: float, age: float | None = None) -> None:
        """Note a line of the log, and what it tells of a stage. Lines that come after the answer are late.

        `age`: seconds since the start that the line bears; a log is read up to half a second late.
        """
        now = now if age is None else min(now, self._marks[0][0] + age)
        if self._marks[-1][1] == PROCESS:
            self._marks.append((now, IMPORTS))
        if progress is None or self._marks[-1][1] == FIRST_TOKEN:
            return
        stage = _ALIKE.get(progress.stage, progress.stage)
        since = now if progress.took_s is None else max(now - progress.took_s, self._marks[0][0])
        while len(self._marks) > 1 and self._marks[-1][0] > since:  # the log knows better than when its lines came
            self._marks.pop()
        if self._marks[-1][1] != stage:
            self._marks.append((since, stage))
        if progress.fraction == 1.0:
            self._marks.append((now, self._follows.get(stage)))

    def alive(self, now: float) -> None:
        """Note that the engine answers: what is left is its first token."""
        if self._marks[-1][1] is None:
            self._marks[-1] = (self._marks[-1][0], SERVER)
        self._marks.append((now, FIRST_TOKEN))

    def seconds(self, now: float) -> tuple[Step, ...]:
        """Sum the seconds of each stage until now; the stages come in the order of their beginnings."""
        return _summed([*self._marks, (now, SERVER)])

    def ended(self) -> tuple[Step, ...]:
        """Sum the seconds of the stages before the present one."""
        at, name = self._marks[-1]
        return _summed([*self._marks[:-1], (at, name or SERVER)])


def _summed(marks: list[tuple[float, str | None]]) -> tuple[Step, ...]:
    took: dict[str, float] = {}
    for place, ((at, name), (until, _)) in enumerate(pairwise(marks)):
        if until > at:
            stage = name or next(later for _, later in marks[place + 1 :] if later)
            took[stage] = took.get(stage, 0.0) + until - at
    return tuple(Step(name=name, s=seconds) for name, seconds in took.items())


LARGEST = 2
QUICKER = 0.7
"""Share of a stage's time up to which another start of this box counts as quicker."""


@dataclass(frozen=True, slots=True)
class Lever:
    """Change that shortens a stage, with published seconds before and after it; None: published without a pair."""

    stage: str
    change: str
    source: str
    before_s: float | None = None
    after_s: float | None = None
    applies: Callable[[Profile, Start], bool] = lambda _profile, _start: True


class Cost(NamedTuple):
    """Long stage of a start. `saves_s`: what the change would save here; None while no pair of times is known."""

    stage: str
    s: float
    change: str | None
    saves_s: float | None
    source: str | None


def largest_costs(levers: Sequence[Lever], profile: Profile, starts: Sequence[Start]) -> list[Cost]:
    """Return the longest stages of the newest of these starts, longest first; the others are the box's record."""
    newest, *others = starts
    longest = sorted(newest.stages, key=lambda step: -step.s)[:LARGEST]
    return [_cost(levers, profile, newest, others, step.name, step.s) for step in longest]


def _cost(
    levers: Sequence[Lever], profile: Profile, newest: Start, others: Sequence[Start], stage: str, s: float
) -> Cost:
    lever = next((one for one in levers if one.stage == stage and one.applies(profile, newest)), None)
    best = min((step.s for start in others for step in start.stages if step.name == stage), default=s)
    if best <= QUICKER * s:
        source = f"this box: {duration(best)} in another of its last {len(others) + 1} starts"
        return Cost(stage, s, lever.change if lever else None, s - best, source)
    return Cost(stage, s, None, None, None) if lever is None else _published_cost(lever, stage, s)


def _published_cost(lever: Lever, stage: str, s: float) -> Cost:
    if lever.before_s is None or lever.after_s is None:
        return Cost(stage, s, lever.change, None, f"published: {lever.source}")
    figures = f"published: {duration(lever.before_s)} to {duration(lever.after_s)}, {lever.source}"
    return Cost(stage, s, lever.change, s * (1 - lever.after_s / lever.before_s), figures)
