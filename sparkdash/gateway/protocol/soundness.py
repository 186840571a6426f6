"""Soundness: tells an engine's answer from a report of its own death and from garbage.

Owns: the patterns in an error's body, in an error event, and at the beginning of a success. Must not know what follows.

Pure.
"""

from __future__ import annotations

import re

from sparkdash.domain.profile import EngineKind
from sparkdash.engines import registry
from sparkdash.upstream import engine_error_text

SHOWN = 200
"""Bytes of a bad answer that a message shows."""
_ERROR = re.compile(rb'\s*\{\s*"(?:error": ?(?:\{|"[^"])|(?:object|type)": ?"error")')
"""Beginning of a body that is an error as a whole: OpenAI's, older engines' and Anthropic's format."""
_BLAMES_REQUEST = re.compile(rb'"(?:code|status)": ?"?4\d\d\b')
"""Pattern of an error that blames the request, not the engine."""


def calls_itself_dead(engine: EngineKind, words: bytes) -> bool:
    """Whether this error says that the engine behind its HTTP server is dead."""
    return any(phrase in words for phrase in registry.adapter(engine).death_words)


def is_error(begins: bytes) -> bool:
    """Whether a whole body with this beginning is an error."""
    return _ERROR.match(begins) is not None


def answer_fault(begins: bytes) -> str | None:
    """Find the fault of a whole answer with status 200 and this beginning; None without one.

    The engine was asked to generate. An error that blames the request counts as an answer: it concerns the client.
    """
    body = begins.lstrip()
    if not body:
        return None if begins else "nothing"  # blanks may be keep-alives
    if not body.startswith(b"{"):
        return f"no JSON object: {body[:SHOWN].decode('utf-8', 'replace')}"
    if is_error(body) and not _BLAMES_REQUEST.search(body):
        return f"an error: {engine_error_text(body)}"
    return None
