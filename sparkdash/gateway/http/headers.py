"""Headers: access by name, and which of them cross the gateway. Pure."""

import re
from collections.abc import Mapping, Sequence

from sparkdash.domain.request import LEASE_HEADER

HeaderPairs = Sequence[tuple[bytes, bytes]]
"""Headers in order, names in lower case."""
HeaderList = list[tuple[bytes, bytes]]

_KEEP_ALIVE = b"keep-alive"
"""Value of nearly every Connection header; the header that it names is dropped anyway."""
_HOP_BY_HOP = frozenset({
    b"connection", _KEEP_ALIVE, b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te", b"trailer",
    b"transfer-encoding", b"upgrade",
})  # fmt: skip
_NOT_FOR_ENGINES = _HOP_BY_HOP | {
    b"host", b"content-length", b"expect", b"accept-encoding", b"authorization", b"x-api-key", b"api-key", b"cookie",
    LEASE_HEADER.encode(),
}  # fmt: skip
"""Includes keys, cookies and the bench's token: they are for the gateway. A lease carries the engine's own key."""
VIA = "x-sparkdash-via"
"""Header of a request that leaves for a server elsewhere: each gateway's id and profile on its way so far."""
_DATA = (b"application/json", b"text/event-stream")
"""Media types that no browser makes a page of."""
_SANDBOX = (b"content-security-policy", b"sandbox allow-scripts allow-forms allow-popups allow-downloads")
_UNBUFFERED = ((b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no"))


_SESSIONS = (
    b"x-session-id", b"x-claude-code-session-id", b"session-id", b"session_id", b"x-session-affinity",
    b"x-opencode-session",
)  # fmt: skip
"""Headers that name a client's session: the common one, Claude Code's, Codex's new and old, opencode's two."""
_SESSION = re.compile(r"[\w.:-]{1,80}", re.ASCII)


class RequestHeaders:
    """A client's headers by lower-case name; a value is decoded when it is read, as most never are."""

    __slots__ = ("_named",)

    def __init__(self, named: Mapping[bytes, bytes]) -> None:
        self._named = named

    def __contains__(self, name: bytes) -> bool:
        return name in self._named

    def get(self, name: bytes) -> str | None:
        value = self._named.get(name)
        return None if value is None else value.decode("latin-1")


def session_of(headers: RequestHeaders) -> str | None:
    """Return the session that a header names; None without one, or for a value that is no plain word."""
    named = next((headers.get(name) for name in _SESSIONS if name in headers), None)
    return named if named is not None and _SESSION.fullmatch(named) else None


def headers_for_engine(headers: HeaderPairs, own: Mapping[str, str], connection: bytes = b"") -> HeaderList:
    """Choose the client's headers that the engine gets.

    `connection`: value of the client's Connection header. `own`: the lease's headers, which replace the client's.
    """
    dropped = _NOT_FOR_ENGINES
    if connection and connection.lower() != _KEEP_ALIVE:
        dropped = dropped | _named_by(connection)
    if not own:
        return [pair for pair in headers if pair[0] not in dropped]
    ours = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in own.items()]
    dropped = dropped | {name.lower() for name, _ in ours}
    return [*(pair for pair in headers if pair[0] not in dropped), *ours]


def headers_for_client(headers: HeaderPairs, *, stream: bool) -> HeaderList:
    """Choose the engine's headers that the client gets, without the body's length.

    An event stream (`stream`) is marked so that no proxy buffers it. What a browser may take for a page gets an origin
    of its own: with the gateway's, an engine's page could use the control API, and read the key that its page keeps.
    """
    dropped = _HOP_BY_HOP
    for name, value in headers:
        if name == b"connection":
            dropped = dropped | _named_by(value)
    passed = [pair for pair in headers if pair[0] not in dropped and not pair[0].startswith(b"access-control-")]
    if stream:
        present = dict(passed)
        passed += [pair for pair in _UNBUFFERED if pair[0] not in present]
    if not _is_data(passed):
        passed.append(_SANDBOX)
    return passed


def _is_data(headers: HeaderPairs) -> bool:
    """Whether the headers name a media type, and none that a browser could show as a page."""
    types = [value.partition(b";")[0].strip().lower() for name, value in headers if name == b"content-type"]
    return bool(types) and all(each in _DATA for each in types)


def _named_by(connection: bytes) -> set[bytes]:
    return {word.strip().lower() for word in connection.split(b",")}


def via_header(before: str | None, hop_id: str, profile: str) -> str:
    """Add a gateway and its profile to the way of a request."""
    return f"{before}, {hop_id}:{profile}" if before else f"{hop_id}:{profile}"


def profiles_since(via: str, hop_id: str) -> list[str]:
    """List the profiles over which a request came back to the gateway of that id; none if it did not."""
    hops = [hop.strip().partition(":") for hop in via.split(",")]
    began = next((number for number, hop in enumerate(hops) if hop[0] == hop_id), len(hops))
    return [profile for _, _, profile in hops[began:]]
