"""Headers: which of them cross the gateway, and which end at it.

Owns: how a client's are asked for, hop-by-hop rules (RFC 9110 section 7.6.1), keys that are not for engines, and CORS that is not
the engine's to grant. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sparkdash.domain.lease import LEASE_HEADER

Raw = Sequence[tuple[bytes, bytes]]
"""Headers, their names in lower case."""

_KEEP_ALIVE = b"keep-alive"
"""What nearly every Connection header says: it names a header that is dropped anyway."""
_HOP = frozenset(
    {
        b"connection",
        _KEEP_ALIVE,
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


class RequestHeaders:
    """A client's headers by name: each is text once it is asked for, as most are not. `named`: their names in lower case."""

    __slots__ = ("_named",)

    def __init__(self, named: Mapping[bytes, bytes]) -> None:
        self._named = named

    def __contains__(self, name: bytes) -> bool:
        return name in self._named

    def get(self, name: bytes) -> str | None:
        """Its value; None when the client sent none."""
        value = self._named.get(name)
        return None if value is None else value.decode("latin-1")


def headers_for_engine(headers: Raw, connection: bytes, own: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """The client's headers for the engine, with the lease's `own` ones in place of the client's. `connection`: what the client's
    Connection header says."""
    dropped = _NOT_FOR_ENGINES
    if connection and connection.lower() != _KEEP_ALIVE:
        dropped = dropped | _named_by(connection)
    if not own:
        return [pair for pair in headers if pair[0] not in dropped]
    ours = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in own.items()]
    dropped = dropped | {name.lower() for name, _ in ours}
    return [*(pair for pair in headers if pair[0] not in dropped), *ours]


def headers_for_client(headers: Raw, *, stream: bool) -> list[tuple[bytes, bytes]]:
    """The engine's headers for the client, but for the body's length. An event stream is marked so that no proxy holds it back."""
    dropped = _HOP
    for name, value in headers:
        if name == b"connection":
            dropped = dropped | _named_by(value)
    passed = [pair for pair in headers if pair[0] not in dropped and not pair[0].startswith(b"access-control-")]
    if stream:
        present = dict(passed)
        passed += [pair for pair in _UNHELD if pair[0] not in present]
    return passed


def _named_by(connection: bytes) -> set[bytes]:
    """The headers that a Connection header itself names as hop-by-hop."""
    return {word.strip().lower() for word in connection.split(b",")}
