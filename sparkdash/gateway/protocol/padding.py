"""Padding: white space before a whole answer, for clients that give up on a silent connection while a model loads.

Owns: which requests get white space, and its bytes. JSON may begin with white space (RFC 8259, section 2).
Padding is opt-in: the status line goes out before the outcome is known, so a later failure has status 200.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

from sparkdash.gateway.protocol.route import Route
from sparkdash.wire import ResponseHeaders

HEADER = b"x-sparkdash-keep-alive"
WORD = "whitespace"
JSON = "application/json"
HEADERS = ResponseHeaders(
    [(b"content-type", JSON.encode()), (b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")]
)
PIECE = b"\n"
_JSON_PATHS = frozenset({"/v1/embeddings", "/v1/rerank", "/v1/score", "/rerank", "/v2/rerank", "/score"})
"""JSON routes besides those that generate; an answer about audio may have any format."""


def wants_padding(word: str | None, agent: str, route: Route, padded_clients: Iterable[str]) -> bool:
    """Whether the client asked for padding and the route answers with JSON.

    `word`: value of the client's HEADER; without one, a User-Agent that matches `padded_clients` asks for padding.
    """
    if route.profile is not None or not (route.generates or route.path in _JSON_PATHS):
        return False
    if word is not None:
        return word.strip().lower() == WORD
    return any(fnmatchcase(agent, pattern) for pattern in padded_clients)


def can_precede(status: int, content_type: str, headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether an engine's answer is still JSON with white space before it."""
    coded = any(name == b"content-encoding" for name, _ in headers)
    return status < 300 and content_type == JSON and not coded
