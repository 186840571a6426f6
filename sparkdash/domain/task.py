"""Tasks of requests, the routes that ask for them, and the engine that `auto` means for each.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType
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


class ServerRoute(StrEnum):
    """Work that a server may be asked for; each has a path of its own."""

    CHAT = "chat"
    COMPLETIONS = "completions"
    RESPONSES = "responses"
    MESSAGES = "messages"
    EMBEDDINGS = "embeddings"
    RERANK = "rerank"
    SCORE = "score"
    TRANSCRIPTIONS = "transcriptions"
    TRANSLATIONS = "translations"
    SPEECH = "speech"
    IMAGES = "images"
    IMAGE_EDITS = "image_edits"
    REALTIME = "realtime"


ROUTE_PATHS: Mapping[ServerRoute, str] = MappingProxyType(
    {
        ServerRoute.CHAT: "/v1/chat/completions",
        ServerRoute.COMPLETIONS: "/v1/completions",
        ServerRoute.RESPONSES: "/v1/responses",
        ServerRoute.MESSAGES: "/v1/messages",
        ServerRoute.EMBEDDINGS: "/v1/embeddings",
        ServerRoute.RERANK: "/v1/rerank",
        ServerRoute.SCORE: "/v1/score",
        ServerRoute.TRANSCRIPTIONS: "/v1/audio/transcriptions",
        ServerRoute.TRANSLATIONS: "/v1/audio/translations",
        ServerRoute.SPEECH: "/v1/audio/speech",
        ServerRoute.IMAGES: "/v1/images/generations",
        ServerRoute.IMAGE_EDITS: "/v1/images/edits",
        ServerRoute.REALTIME: "/v1/realtime",
    }
)
"""Path of each route at the gateway, and at the server unless its profile says otherwise."""

ROUTE_TASKS: Mapping[ServerRoute, Task] = MappingProxyType(
    {
        ServerRoute.CHAT: Task.GENERATE,
        ServerRoute.COMPLETIONS: Task.GENERATE,
        ServerRoute.RESPONSES: Task.GENERATE,
        ServerRoute.MESSAGES: Task.GENERATE,
        ServerRoute.EMBEDDINGS: Task.EMBED,
        ServerRoute.RERANK: Task.RERANK,
        ServerRoute.SCORE: Task.RERANK,
        ServerRoute.TRANSCRIPTIONS: Task.TRANSCRIBE,
        ServerRoute.TRANSLATIONS: Task.TRANSCRIBE,
        ServerRoute.SPEECH: Task.SPEAK,
        ServerRoute.IMAGES: Task.DRAW,
        ServerRoute.IMAGE_EDITS: Task.DRAW,
    }
)
"""Task of each route, by which `auto` chooses; realtime has none."""
