"""Task: what an engine is asked for, and which engine `auto` means for it. Pure.

Owns: the rule of `auto`, which the supervisor and whoever reads a snapshot share. Must not know routes or command lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple


class Task(StrEnum):
    """What a request asks a model for."""

    GENERATE = "generate"
    EMBED = "embed"
    RERANK = "rerank"
    TRANSCRIBE = "transcribe"
    SPEAK = "speak"


class Candidate(NamedTuple):
    """An engine that runs, as far as `auto` is concerned. Times are of one clock, whichever."""

    profile: str
    tasks: frozenset[Task] | None
    """All that it can be asked for; None: that is not known."""
    used_at: Mapping[Task, float]
    """When it was last given a request, by task."""
    ready_at: float

    def suits(self, task: Task | None) -> bool:
        """Whether nothing is known against it. Without a task, as for token counts, any engine will do."""
        return task is None or self.tasks is None or task in self.tasks


def meant_by_auto(task: Task | None, there: Iterable[Candidate], own: str | None = None) -> str | None:
    """The profile that `auto` means for this task: `own`, which is the one that this client used last, else the one that was used
    last for it, else the one that became ready last. None: nothing that runs can do it."""

    def rank(each: Candidate) -> tuple[bool, float, bool, bool, float]:
        times = each.used_at.values() if task is None else [at for used, at in each.used_at.items() if used is task]
        known = each.tasks is not None
        return (each.profile == own, max(times, default=float("-inf")), known, not each.used_at, each.ready_at)

    best = max((each for each in there if each.suits(task)), key=rank, default=None)
    return best.profile if best else None
