"""Route: what a path of the openai-facing side means.

Owns: which paths are relayed, how they are spelled upstream, which dialect they speak and what they need.
Pure. Rule: a path that is not known is no route, and the client gets a 404: probing clients take a 200 for a yes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import unquote


class Dialect(StrEnum):
    """How a stream on this path is framed, how waiting is told in it, and how failure is."""

    CHAT = "chat"
    COMPLETIONS = "completions"
    RESPONSES = "responses"
    MESSAGES = "messages"
    OTHER = "other"
    """Anything else: embeddings, audio, rerank, an engine's own paths."""


@dataclass(frozen=True, slots=True)
class Route:
    """One request's path, understood. `path` is what the engine gets (still percent-encoded)."""

    path: str
    dialect: Dialect = Dialect.OTHER
    needs_model: bool = False
    """The body must name a model; otherwise a missing one means `auto`."""
    methods: frozenset[str] | None = None
    """The only methods that make sense; None: let the engine decide."""
    generates: bool = False
    """The profile's request defaults apply."""


_POST = frozenset({"POST"})
_GENERATE = {
    "/v1/chat/completions": Dialect.CHAT,
    "/v1/completions": Dialect.COMPLETIONS,
    "/v1/responses": Dialect.RESPONSES,
    "/v1/messages": Dialect.MESSAGES,
}
_MODEL = {
    "/v1/embeddings": Dialect.OTHER,
    "/v1/messages/count_tokens": Dialect.MESSAGES,
    "/v1/rerank": Dialect.OTHER,
    "/v1/score": Dialect.OTHER,
    "/v1/audio/transcriptions": Dialect.OTHER,
    "/v1/audio/translations": Dialect.OTHER,
    "/v1/audio/speech": Dialect.OTHER,
}
_AT_ROOT = {
    "/tokenize": _POST,
    "/detokenize": _POST,
    "/rerank": _POST,
    "/v2/rerank": _POST,
    "/score": _POST,
    "/infill": _POST,
    "/completion": _POST,
    "/apply-template": _POST,
    "/props": frozenset({"GET", "HEAD"}),
    "/slots": frozenset({"GET", "HEAD"}),
}
"""Paths that engines serve without /v1. Their admin paths (/sleep, /metrics, …) are not for clients."""
_FORGIVEN = frozenset(path.removeprefix("/v1") for path in (*_GENERATE, *_MODEL)) - _AT_ROOT.keys()
"""Clients whose base URL lacks /v1 mean these."""


def understand(raw_path: str) -> Route | None:
    """The route of a percent-encoded path; None when there is none."""
    path = unquote(raw_path)
    if any(part in (".", "..") for part in path.split("/")) or "\\" in path:
        return None
    raw_path = raw_path.rstrip("/")
    while raw_path.startswith("/v1/v1/"):
        raw_path = raw_path.removeprefix("/v1")
    if raw_path in _FORGIVEN:
        raw_path = "/v1" + raw_path
    if dialect := _GENERATE.get(raw_path):
        return Route(raw_path, dialect, needs_model=True, methods=_POST, generates=True)
    if dialect := _MODEL.get(raw_path):
        return Route(raw_path, dialect, needs_model=True, methods=_POST)
    if methods := _AT_ROOT.get(raw_path):
        return Route(raw_path, methods=methods)
    return Route(raw_path) if raw_path.startswith("/v1/") else None
