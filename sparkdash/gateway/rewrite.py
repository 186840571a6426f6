"""Rewrite: the few bytes of a request that must differ upstream.

Owns: splicing a model name and a profile's defaults into a body. Pure.
Rule: what need not change stays byte for byte, so that a prompt hits the prefix cache as the client wrote it;
a body that needs nothing is returned as the same object.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from sparkdash.gateway.peek import Peeked

_DECODER = json.JSONDecoder()
_SPACE = " \t\n\r"


class _Member(NamedTuple):
    key: str
    start: int
    end: int
    """The value is text[start:end]."""


def rewrite(body: bytes, asked: Peeked, names: tuple[str, ...], defaults: Mapping[str, Any]) -> bytes:
    """The body with a model name that the engine takes, and with those `defaults` whose key the client did not set.

    `names`: what the engine accepts; the first replaces any other. Empty: whatever the client wrote.
    """
    name = names[0] if names and asked.model is not None and asked.model not in names else None
    if asked.span is not None:
        return body if name is None else body[: asked.span[0]] + name.encode() + body[asked.span[1] :]
    if name is None and not defaults:
        return body
    return _splice(body, name, defaults)


def _splice(body: bytes, name: str | None, defaults: Mapping[str, Any]) -> bytes:
    text = body.decode("utf-8-sig")
    members = list(_members(text))
    set_by_client = {member.key for member in members}
    missing = {key: value for key, value in defaults.items() if key not in set_by_client}
    if name is None and not missing:
        return body
    pieces, at = [], 0
    for member in members:
        if member.key == "model" and name is not None:
            pieces += [text[at : member.start], json.dumps(name)]
            at = member.end
    close = text.rindex("}")
    added = json.dumps(missing, ensure_ascii=False, separators=(",", ":"))[1:-1]
    pieces += [text[at:close], "," if members and added else "", added, text[close:]]
    return "".join(pieces).encode()


def _members(text: str) -> Iterator[_Member]:
    """The top-level members of an object that is known to be valid JSON."""
    at = _skip(text, _skip(text, 0) + 1)
    while text[at] != "}":
        key, at = _DECODER.raw_decode(text, at)
        start = _skip(text, _skip(text, at) + 1)
        _, end = _DECODER.raw_decode(text, start)
        yield _Member(key, start, end)
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    while text[at] in _SPACE:
        at += 1
    return at
