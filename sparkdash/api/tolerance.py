"""Reading of a daemon's answers by a client that may be older or newer than the daemon.

Owns: what of a newer daemon is ignored (fields, kinds of facts), and when a version is too far away. Must not know
connections. The daemon itself stays strict about what clients send.

Pure.
"""

from __future__ import annotations

import json
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from sparkdash import __version__
from sparkdash.domain.event import EVENT, Event, Withheld
from sparkdash.domain.state import Snapshot

T = TypeVar("T")
_UNKNOWN_KIND = "union_tag_invalid"
_SNAPSHOT = TypeAdapter(Snapshot)


class OtherVersion(Exception):  # noqa: N818 - the client that knows the address words the error
    """Raised for the state of a daemon whose version cannot be followed: `version`."""

    def __init__(self, version: str) -> None:
        super().__init__(version)
        self.version = version


def read_answer(adapter: TypeAdapter[T], content: bytes | str) -> T:
    """Read an answer without the fields that this version does not know.

    Raises:
        pydantic.ValidationError: the answer has another type.
        OtherVersion: it is the state of a daemon with another major version.
    """
    try:
        read = adapter.validate_json(content, extra="ignore")
    except ValidationError:
        refuse_other_major(_told_version(content))
        raise
    if isinstance(read, Snapshot):
        refuse_other_major(read.daemon.version)
    return read


def read_snapshot(content: str) -> Snapshot:
    """Read a snapshot of the feed; raises as `read_answer`."""
    return read_answer(_SNAPSHOT, content)


def read_event(content: str) -> Event:
    """Read an event of the feed; a fact of a kind that this version does not know becomes `Withheld`.

    Raises:
        pydantic.ValidationError: a known fact cannot be read.
    """
    try:
        return EVENT.validate_json(content, extra="ignore")
    except ValidationError as error:
        if any(problem["type"] != _UNKNOWN_KIND for problem in error.errors(include_url=False, include_input=False)):
            raise
        told = json.loads(content)
        return Event(seq=told["seq"], at=told["at"], fact=Withheld())


def refuse_other_major(version: str | None) -> None:
    """Raise OtherVersion where the daemon's first number differs from this version's; None: unknown."""
    if version is not None and version.partition(".")[0] != __version__.partition(".")[0]:
        raise OtherVersion(version)


def _told_version(content: bytes | str) -> str | None:
    try:
        told: Any = json.loads(content)
        version = told["daemon"]["version"]
    except (ValueError, KeyError, TypeError):
        return None
    return version if isinstance(version, str) else None
