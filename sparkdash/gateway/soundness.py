"""Tell an engine's answer from its own death, and from what is no answer. Pure.

Owns: what is looked for in an error's body, in an error event, and where a success begins. Must not know what follows.
"""

from __future__ import annotations

import re

from sparkdash.domain.profile import EngineKind
from sparkdash.engines import registry
from sparkdash.upstream import engine_words

SHOWN = 200
"""Bytes of a bad answer that are shown."""
_ERROR = re.compile(rb'\s*\{\s*"(?:error": ?(?:\{|"[^"])|(?:object|type)": ?"error")')
"""How a body begins that is an error as a whole: OpenAI's, older engines' and Anthropic's words."""
_BLAMES_REQUEST = re.compile(rb'"(?:code|status)": ?"?4\d\d\b')
"""What such a body has in it when the request is at fault, not the engine."""


def calls_itself_dead(engine: EngineKind, words: bytes) -> bool:
    """Does this error of the engine's say that the engine behind its HTTP server is dead?"""
    return any(said in words for said in registry.adapter(engine).death_words)


def is_error(begins: bytes) -> bool:
    """Is a whole body that begins so an error?"""
    return _ERROR.match(begins) is not None


def fault_of(begins: bytes) -> str | None:
    """What is wrong with the whole answer of an engine that was asked to generate, said 200 and begins so; None: nothing is seen.

    An error that blames the request is an answer, and its client's business.
    """
    body = begins.lstrip()
    if not body:
        return None if begins else "nothing"  # blanks may be sent to keep a connection alive
    if not body.startswith(b"{"):
        return f"no JSON object: {body[:SHOWN].decode('utf-8', 'replace')}"
    if is_error(body) and not _BLAMES_REQUEST.search(body):
        return f"an error: {engine_words(body)}"
    return None
