"""ParsedHead: the part of a request before its body, in the form in which the gateway reads it.

Owns: what follows from the head alone; clients repeat heads, so it is computed once per distinct head.
Must not know keys, routes or engines: the gateway keeps what it finds out about a head in `app.KnownHead`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import unquote

from sparkdash.domain.lease import LEASE_HEADER
from sparkdash.gateway.http.asgi import Scope
from sparkdash.gateway.http.headers import HeaderList, RequestHeaders, headers_for_engine
from sparkdash.gateway.protocol.peek import PRIORITY
from sparkdash.limits import AGENT
from sparkdash.upstream import encode_headers
from sparkdash.wire.request_head import RequestHead, by_name

LENGTH = b"content-length"
UNCHANGED = "/upstream/"
"""Prefix of paths that go to an engine with every slash. Elsewhere `//` comes from a base URL that ends with a
slash."""
_SLASHES = re.compile("//+")
_NOTHING: Mapping[str, str] = {}
_PRIORITY, _LEASE = PRIORITY.encode(), LEASE_HEADER.encode()


class ParsedHead:
    """Method, path, headers and what follows from them; shared by all requests with the same head.

    `headers` and `raw_headers` hold all of the client's headers but the body's length; `raw_headers` are in the
    client's order, with names in lower case.
    """

    __slots__ = (
        "_connection", "_for_engine", "agent", "coding", "content_type", "headers", "method", "path", "priority",
        "query", "raw_headers", "raw_path", "token", "unix",
    )  # fmt: skip

    def __init__(
        self,
        method: str,
        path: str,
        raw_path: bytes,
        query: bytes,
        raw_headers: HeaderList,
        named: Mapping[bytes, bytes],
        server: tuple[str, int | None] | None,
    ) -> None:
        """Parse a head. `named`: `raw_headers` by name; `server`: ASGI's, the address that the client connected to."""
        self.method = method
        self.raw_path = raw_path.decode("latin-1")
        self.path = path
        if self.raw_path.find("//") >= 0 and not self.raw_path.startswith(UNCHANGED):
            self.raw_path = _SLASHES.sub("/", self.raw_path)
            self.path = unquote(self.raw_path)
        self.query = query.decode("latin-1")
        self.raw_headers = raw_headers
        self.headers = headers = RequestHeaders(named)
        self.unix = by_unix_socket(server)
        coding = (headers.get(b"content-encoding") or "").strip().lower()
        self.coding = "" if coding == "identity" else coding
        """Compression of the body; empty without one."""
        self.content_type = headers.get(b"content-type") or ""
        self.agent = (headers.get(b"user-agent") or "")[:AGENT]
        self.priority = headers.get(_PRIORITY)
        self.token = headers.get(_LEASE)
        """Token of the client that holds the gateway exclusively."""
        self._connection = named.get(b"connection", b"")
        self._for_engine: bytes | None = None

    @classmethod
    def of_wire(cls, head: RequestHead) -> ParsedHead:
        """Parse the head of a request that came over our own server."""
        return cls(head.method, head.path, head.raw_path, head.query, head.headers, head.named, head.listener[0])

    @classmethod
    def from_scope(cls, scope: Scope) -> ParsedHead:
        """Parse the head of an ASGI request."""
        path: str = scope["path"]
        headers = [(name.lower(), value) for name, value in scope["headers"] if name.lower() != LENGTH]
        raw_path = scope.get("raw_path") or path.encode()
        server = scope.get("server")
        return cls(scope["method"], path, raw_path, scope["query_string"], headers, by_name(headers), server)

    def for_engine(self, own: Mapping[str, str]) -> bytes:
        """Encode the headers for an engine, with the lease's `own` ones in place of the client's."""
        if own:
            return encode_headers(headers_for_engine(self.raw_headers, self._connection, own))
        if self._for_engine is None:
            self._for_engine = encode_headers(headers_for_engine(self.raw_headers, self._connection, _NOTHING))
        return self._for_engine


def by_unix_socket(server: tuple[str, int | None] | None) -> bool:
    """Whether a request came through the unix socket, which only programs of this box can open."""
    return server is not None and server[1] is None
