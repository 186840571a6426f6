"""Head: what a request says before its body, in the form in which the gateway asks it.

Clients say the same again and again; then it is the same object for all of these requests, and what follows from it alone is
found out once. Must not hold what follows from anything else, but for the gateway's own settings, and for the keys with the very
keys beside it.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

from sparkdash.access.key import Key
from sparkdash.domain.lease import LEASE_HEADER
from sparkdash.gateway.admission.guard import Pairs, by_unix_socket
from sparkdash.gateway.admission.rights import Right
from sparkdash.gateway.http.headers import RequestHeaders, headers_for_engine
from sparkdash.gateway.protocol.peek import PRIORITY
from sparkdash.limits import AGENT
from sparkdash.upstream import encode_headers
from sparkdash.wire import RequestChannel, by_name

if TYPE_CHECKING:
    from sparkdash.gateway.admission.access import Caller
    from sparkdash.gateway.deps import Deps
    from sparkdash.gateway.http.exchange import Exchange

Scope = MutableMapping[str, Any]
LENGTH = b"content-length"
UNCHANGED = "/upstream/"
"""How the paths begin that belong to an engine, with every slash. Elsewhere two are a base URL's last and a path's first."""
_SLASHES = re.compile("//+")
_NOTHING: Mapping[str, str] = {}
_PRIORITY, _LEASE = PRIORITY.encode(), LEASE_HEADER.encode()


class Way(NamedTuple):
    """Where a request goes that the guard let in."""

    answer: Callable[[Deps, Exchange], Awaitable[None]]
    right: Right
    """Right that the route requires."""
    counts: bool
    """It is work for an engine, and within its key's limits."""
    audited: bool
    """It changes something, and who did it is written down."""


class ParsedHead:
    """See the module. `headers` and `given` have all of the client's headers but the body's length, `given` as they came but for
    the case of their names."""

    __slots__ = (
        "_connection", "_for_engine", "agent", "coding", "content_type", "granted", "headers", "known", "method", "path",
        "priority", "query", "raw_headers", "raw_path", "token", "unix", "way",
    )  # fmt: skip

    def __init__(
        self,
        method: str,
        path: str,
        raw_path: bytes,
        query: bytes,
        raw_headers: Pairs,
        named: Mapping[bytes, bytes],
        server: tuple[str, int | None] | None,
    ) -> None:
        """`named`: what is `given`, by name."""
        self.method = method
        self.raw_path = raw_path.decode("latin-1")
        self.path = path
        if self.raw_path.find("//") >= 0 and not self.raw_path.startswith(UNCHANGED):
            self.raw_path = _SLASHES.sub("/", self.raw_path)
            self.path = unquote(self.raw_path)
        self.query = query.decode("latin-1")
        self.raw_headers = raw_headers
        self.headers = said = RequestHeaders(named)
        self.unix = by_unix_socket(server)
        coding = (said.get(b"content-encoding") or "").strip().lower()
        self.coding = "" if coding == "identity" else coding
        """How the body is compressed."""
        self.content_type = said.get(b"content-type") or ""
        self.agent = (said.get(b"user-agent") or "")[:AGENT]
        self.priority = said.get(_PRIORITY)
        self.token = said.get(_LEASE)
        """Of whoever has the gateway to itself."""
        self.way: Way | None = None
        """Set once the guard found nothing against it."""
        self.granted: Pairs = []
        """Headers of every answer, for the page that asks; set then, too."""
        self.known: tuple[tuple[Key, ...], Caller] | None = None
        """Who asks, once one of these keys was found in it."""
        self._connection = named.get(b"connection", b"")
        self._for_engine: bytes | None = None

    @classmethod
    def of_channel(cls, line: RequestChannel) -> ParsedHead:
        """The head of the request on this line."""
        said = line.head
        if said.memo is None:
            said.memo = cls(
                said.method, said.path, said.raw_path, said.query, said.headers, said.named, said.listener[0]
            )
        head: ParsedHead = said.memo
        return head

    @classmethod
    def from_scope(cls, scope: Scope) -> ParsedHead:
        """The head of an ASGI request."""
        path: str = scope["path"]
        given = [(name.lower(), value) for name, value in scope["headers"] if name.lower() != LENGTH]
        raw_path = scope.get("raw_path") or path.encode()
        return cls(scope["method"], path, raw_path, scope["query_string"], given, by_name(given), scope.get("server"))

    def for_engine(self, own: Mapping[str, str]) -> bytes:
        """The headers that an engine gets of it, with the lease's `own` ones in place of the client's."""
        if own:
            return encode_headers(headers_for_engine(self.raw_headers, self._connection, own))
        if self._for_engine is None:
            self._for_engine = encode_headers(headers_for_engine(self.raw_headers, self._connection, _NOTHING))
        return self._for_engine
