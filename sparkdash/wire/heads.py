"""Heads of requests and answers, and the addresses of sockets."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from urllib.parse import unquote
from weakref import ref

import httptools

Address = tuple[str, int | None] | None
"""A host and a port; (path, None) for a unix socket."""
SocketName = tuple[str, int] | tuple[str, int, int, int] | str | None
"""Name of a socket as its transport keeps it."""


def remote_host(name: SocketName) -> str | None:
    """Return the host of a socket's name; None for loopback and unix sockets."""
    if not isinstance(name, tuple):
        return None
    host = name[0]
    return None if host == "::1" or host.startswith(("127.", "::ffff:127.")) else host


def asgi_address(name: SocketName) -> Address:
    """Return a socket's name in ASGI's form, which keeps two of IPv6's four parts."""
    if isinstance(name, tuple):
        return name[0], name[1]
    return (name, None) if isinstance(name, str) else None


Fields = list[tuple[bytes, bytes]]
"""Headers as they came, but for the case of their names."""
Listener = tuple[Address, str]
"""A server's own address and the scheme."""
RawHead = tuple[Listener, str, bytes, bytes, Fields]
"""Listener, version, method, URL and headers."""


class RequestHead:
    """First line and headers of a request, but for the length of its body.

    Clients send the same head again and again, on one connection or on many: that is one object, and what was found out
    about it is kept in `memo`. `headers`: with names in lower case; `named`: the same by name.
    """

    __slots__ = (
        "__weakref__", "expects", "headers", "is_http10", "keeps", "listener", "memo", "method", "named", "path",
        "query", "raw", "raw_path", "version",
    )  # fmt: skip

    def __init__(self, raw: RawHead, *, keeps: bool) -> None:
        """Read a head. `keeps`: the headers do not ask that the connection be closed.

        Raises httptools.HttpParserError or ValueError: the URL is invalid, or a request of HTTP/1.1 has not exactly one
        Host (RFC 9112 section 3.2).
        """
        self.raw = raw
        self.listener, self.version, method, url, self.headers = raw
        self.named = by_name(self.headers)
        if self.version == "1.1" and b"," in self.named.get(b"host", b","):
            raise ValueError("not one Host")
        self.method = method.decode("ascii")
        self.raw_path, self.query = _parted(url)
        path = self.raw_path.decode("ascii")
        self.path = unquote(path) if "%" in path else path
        self.is_http10 = self.version == "1.0"
        """HTTP/1.0 has neither chunks nor persistent connections."""
        self.keeps = keeps and not self.is_http10
        """Whether the connection stays open for further requests."""
        self.expects = self.named.get(b"expect", b"").lower() == b"100-continue"
        """Whether the client sends its body only after `100 Continue`."""
        self.memo: object = None
        """The application's: what follows from the head alone."""


class RequestHeadCache:
    """Caches the first request head of the last connection, weakly.

    Clients open many connections in a burst, each with the same head. A head, and any key in it, goes with the last
    connection that sent it.
    """

    def __init__(self) -> None:
        self._last: Callable[[], RequestHead | None] = _no_head

    def first(self, raw: RawHead, *, keeps: bool) -> RequestHead:
        """Return the head of a connection's first request. `keeps`, and what is raised: as in RequestHead."""
        head = self._last()
        if head is None or head.raw != raw:
            head = RequestHead(raw, keeps=keeps)
            self._last = ref(head)
        return head


def _no_head() -> None:
    """Return None: there was no connection yet."""


def by_name(headers: Fields) -> dict[bytes, bytes]:
    """Return headers by name; values of a name that comes more than once are one list (RFC 9110 section 5.3)."""
    named = dict(headers)
    if len(named) == len(headers):
        return named
    values_of: dict[bytes, list[bytes]] = {}
    for name, value in headers:
        values_of.setdefault(name, []).append(value)
    return {name: b", ".join(values) for name, values in values_of.items()}


def _parted(url: bytes) -> tuple[bytes, bytes]:
    parsed = httptools.parse_url(url)
    if parsed.path is None:
        raise ValueError("an address without a path")
    return parsed.path, parsed.query or b""


LENGTH = b"content-length"


class ResponseHeaders:
    """Headers of an answer as they are written. Make equal headers once, and use them for many answers.

    `headers`: all but the Content-Length, with names in lower case; `length`: bytes of the body, where the headers say;
    `lines`: the bytes to write; `closes`: whether the headers announce the end of the connection.
    """

    __slots__ = ("closes", "headers", "length", "lines")

    def __init__(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Raises ValueError: a header contains a line break, and would be written as two."""
        self.length: int | None = None
        self.headers: list[tuple[bytes, bytes]] = []
        self.closes = False
        for header in headers:
            name, value = header
            if name == LENGTH:
                self.length = int(value)
                continue
            self.headers.append(header)
            if name == b"connection" and b"close" in value.lower():
                self.closes = True
        written = [b": ".join(header) for header in self.headers]
        all_of_them = b"".join(written)
        if all_of_them.find(b"\n") >= 0 or all_of_them.find(b"\r") >= 0:
            raise ValueError("a header of the answer has a line break in it")
        self.lines = b"\r\n".join([*written, b""])
