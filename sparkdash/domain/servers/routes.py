"""Routes that a server may serve: their paths at the gateway, and the task of each.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from sparkdash.domain.task import Task


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
