"""Rewrite: changes a few bytes of a request's body and leaves the rest as they are.

Rule: unchanged parts stay byte for byte, so that a prompt hits the prefix cache as the client wrote it; a body that
needs nothing is returned as the same object.

Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

_DECODER = json.JSONDecoder()
_json = json.JSONEncoder(separators=(",", ":")).encode
"""Encodes as ASCII, since a client's lone surrogate has no UTF-8 bytes."""
_PLAIN = re.compile(r"[a-z0-9_]+", re.IGNORECASE | re.ASCII)
_SPACE = " \t\n\r"


@dataclass(frozen=True)
class Edits:
    """Changes by top-level key. Derived values are cached: keep an instance that serves many requests."""

    put: Mapping[str, Any] = field(default_factory=dict)
    """Values that replace the client's; an object is merged into the client's own, key by key."""
    fill: Mapping[str, Any] = field(default_factory=dict)
    """Values for keys that the client did not send."""
    drop: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.put or self.fill or self.drop)

    @cached_property
    def added(self) -> bytes:
        """Members for a body that has none of the keys."""
        return _json({**self.fill, **self.put})[1:-1].encode()

    @cached_property
    def needles(self) -> tuple[bytes, ...] | None:
        """Keys as they are written in a body; None if they can be written in several ways."""
        keys = (*self.put, *self.fill, *self.drop)
        return tuple(b'"%b"' % key.encode() for key in keys) if all(map(_PLAIN.fullmatch, keys)) else None


class _Member(NamedTuple):
    """A member: text[at:value] is its key and colon, text[value:end] its value."""

    key: str
    at: int
    value: int
    end: int


def rewrite_body(body: bytes, edits: Edits, *, has_none: bool = False) -> bytes:
    """Apply the edits to a JSON object; new members go to its end. `has_none`: none of the keys is in it."""
    if not edits:
        return body
    if (has_none or _lacks(body, edits)) and (appended := _appended(body, edits)) is not None:
        return appended
    return _spliced(body, edits)


def rename_model(form: bytes, span: tuple[int, int], name: str) -> bytes:
    """Replace the name at the position that `peek_body` found in a multipart body."""
    return form[: span[0]] + name.encode() + form[span[1] :]


def _spliced(body: bytes, edits: Edits) -> bytes:
    """Apply the edits member by member; the same object where none applies."""
    text = body.decode("utf-8-sig")
    members = list(_members(text))
    kept = [member for member in members if member.key not in edits.drop]
    stays = {member.key for member in kept}
    added = {**edits.fill, **edits.put}
    added = {key: value for key, value in added.items() if key not in stays}
    if not (added or len(kept) < len(members) or stays & edits.put.keys()):
        return body
    return "".join(_pieces(text, members, kept, edits.put, added)).encode()


def _lacks(body: bytes, edits: Edits) -> bool:
    """Whether a plain search shows that the body has none of the keys."""
    needles = edits.needles
    if needles is None or body.find(b"\\u") >= 0:
        return False  # escapes may spell a key in other ways
    return all(body.find(needle) < 0 for needle in needles)


def _appended(body: bytes, edits: Edits) -> bytes | None:
    """Append the members without parsing the body; None if it must be parsed."""
    if body[:1] != b"{":
        return None
    end = body.rindex(b"}")
    before = body[:end].rstrip()
    if before == b"{":
        return None
    return b"%b,%b%b" % (before, edits.added, body[len(before) :]) if edits.added else body


def _pieces(
    text: str, members: list[_Member], kept: list[_Member], put: Mapping[str, Any], added: Mapping[str, Any]
) -> Iterator[str]:
    open_to = members[0].at if members else text.index("{") + 1
    close_from = members[-1].end if members else open_to
    following = {member: after.at for member, after in pairwise(members)}
    yield text[:open_to]
    for number, member in enumerate(kept, 1):
        yield text[member.at : member.value]
        written = text[member.value : member.end]
        yield _json(_merged(written, put[member.key])) if member.key in put else written
        if number < len(kept):
            yield text[member.end : following[member]]
    if added:
        yield ("," if kept else "") + _json(added)[1:-1]
    yield text[close_from:]


def _merged(written: str, value: Any) -> Any:
    theirs = json.loads(written) if isinstance(value, Mapping) else None
    return {**theirs, **value} if isinstance(theirs, dict) else value


def _members(text: str) -> Iterator[_Member]:
    """Yield the top-level members of a valid JSON object."""
    at = _skip(text, _skip(text, 0) + 1)
    while text[at] != "}":
        key, colon = _DECODER.raw_decode(text, at)
        value = _skip(text, _skip(text, colon) + 1)
        _, end = _DECODER.raw_decode(text, value)
        yield _Member(key, at, value, end)
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    while text[at] in _SPACE:
        at += 1
    return at
