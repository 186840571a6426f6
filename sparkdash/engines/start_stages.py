"""A start, taken apart: the seconds of each stage, by the lines of the engine's log and the times that they tell.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

from sparkdash.domain.engine import LoadProgress
from sparkdash.domain.swap import Step

PROCESS, IMPORTS, SERVER, FIRST_TOKEN = "process", "imports", "server", "first token"
_ALIKE = {"http": SERVER, "ready": SERVER}


class StartStages:
    """Stages of a start whose container began at `began`. All times are monotonic seconds.

    `follows` names the stage that comes after the end of another one. Where it does not, the time up to the next line
    that names a stage belongs to that stage.
    """

    def __init__(self, began: float, follows: Mapping[str, str]) -> None:
        self._follows = follows
        self._marks: list[tuple[float, str | None]] = [(began, PROCESS)]
        """Time at which each stage began; None: the log names it later."""

    def heard(self, progress: LoadProgress | None, now: float) -> None:
        """Note a line of the log, and what it tells of a stage. Lines that come after the answer are late."""
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
        took: dict[str, float] = {}
        for name, seconds in self._spans(now):
            took[name] = took.get(name, 0.0) + seconds
        return tuple(Step(name=name, s=seconds) for name, seconds in took.items())

    def _spans(self, now: float) -> Iterator[tuple[str, float]]:
        ends = [*self._marks, (now, SERVER)]
        for place, ((at, name), (until, _)) in enumerate(pairwise(ends)):
            if until > at:
                yield name or next(later for _, later in ends[place + 1 :] if later), until - at
