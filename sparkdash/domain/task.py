"""Tasks of requests, and the engine that `auto` means for each.

Owns: the rule of `auto`, shared by the supervisor and readers of a snapshot. Must not know routes or command lines.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple


class Task(StrEnum):
    """Kind of work that a request asks a model for."""

    GENERATE = "generate"
    EMBED = "embed"
    RERANK = "rerank"
    TRANSCRIBE = "transcribe"
    SPEAK = "speak"
    DRAW = "draw"


class Candidate(NamedTuple):
    """A running engine as a candidate for `auto`. All times are of the same clock."""

    profile: str
    tasks: frozenset[Task] | None
    """Tasks that the engine can do; None while unknown."""
    used_at: Mapping[Task, float]
    """Time of the last request to the engine, by task."""
    ready_at: float

    def suits(self, task: Task | None) -> bool:
        """Whether the candidate is not known to lack the task. No task, as for token counts, suits any engine."""
        return task is None or self.tasks is None or task in self.tasks


def meant_by_auto(task: Task | None, there: Iterable[Candidate], own: str | None = None) -> str | None:
    """Choose the profile that `auto` means for this task; None when no running engine can do it.

    Order of choice: `own`, the profile that this client used last; the profile last used for this task; the profile
    that became ready last.
    """

    def rank(each: Candidate) -> tuple[bool, float, bool, bool, float]:
        times = each.used_at.values() if task is None else [at for used, at in each.used_at.items() if used is task]
        known = each.tasks is not None
        return (each.profile == own, max(times, default=float("-inf")), known, not each.used_at, each.ready_at)

    best = max((each for each in there if each.suits(task)), key=rank, default=None)
    return best.profile if best else None
