"""Headers: which of them cross the gateway, and which end at it.

Owns: hop-by-hop rules (RFC 9110 section 7.6.1), keys that are not for engines, and CORS that is not the engine's to grant.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sparkdash.domain.lease import LEASE_HEADER

Raw = Iterable[tuple[bytes, bytes]]

_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
_NOT_FOR_ENGINES = _HOP | {
    b"host",
    b"content-length",
    b"expect",
    b"accept-encoding",
    b"authorization",
    b"x-api-key",
    b"api-key",
    b"cookie",
    LEASE_HEADER.encode(),
}
"""Keys, cookies and the bench's token are meant for us; an engine gets its own through the lease."""
_UNHELD = ((b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no"))


def to_engine(headers: Raw, own: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """The client's headers for the engine, with the lease's `own` ones in place of the client's."""
    passed = _passed(headers, _NOT_FOR_ENGINES)
    if not own:
        return passed
    ours = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in own.items()]
    names = {name.lower() for name, _ in ours}
    return [*(pair for pair in passed if pair[0] not in names), *ours]


def to_client(headers: Raw, *, stream: bool) -> list[tuple[bytes, bytes]]:
    """The engine's headers for the client, but for the body's length. An event stream is marked so that no proxy holds it back."""
    crossing = _passed(headers, _HOP)
    passed = [pair for pair in crossing if not pair[0].startswith(b"access-control-")]
    if not stream:
        return passed
    present = {name for name, _ in passed}
    return [*passed, *(pair for pair in _UNHELD if pair[0] not in present)]


def _passed(headers: Raw, dropped: frozenset[bytes]) -> list[tuple[bytes, bytes]]:
    """All but those `dropped` and those that the Connection header itself names as hop-by-hop; names in lower case."""
    passed, named = [], b""
    for name, value in headers:
        name = name.lower()
        if name not in dropped:
            passed.append((name, value))
        elif name == b"connection":
            named += b"," + value
    if not named:
        return passed
    words = {word.strip().lower() for word in named.split(b",")}
    return [pair for pair in passed if pair[0] not in words]
