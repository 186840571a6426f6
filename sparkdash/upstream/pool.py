"""Pool: connections to engines between two requests.

Rule: nothing wakes the process while no connection is kept.
"""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass, field
from functools import lru_cache
from urllib.parse import urlsplit

from sparkdash.errors import UpstreamError
from sparkdash.upstream.connection import EngineConnection

CONNECT_S = 2.0
"""Seconds for a connection on loopback; one that takes longer will not come."""
REMOTE_CONNECT_S = 10.0
"""Seconds for a connection elsewhere: names are looked up, packets lost, certificates exchanged."""
KEPT_S = 15.0
"""Seconds (and at most as many again) for which an idle connection is kept.

A connection that a router has forgotten would swallow a request.
"""
NEAR_KEPT_S = 60.0
"""The same on this box, as in nginx. No middlebox on loopback can drop idle connections, and engines close their own.
"""
_PORTS = {"http": 80, "https": 443}


@dataclass(slots=True)
class Origin:
    """Address of an engine, and the idle connections to it, the one used last at the end."""

    root: str
    """Scheme and authority of its URLs."""
    host: str
    port: int
    tls: bool
    authority: str
    """Value of the Host header."""
    free: list[EngineConnection] = field(default_factory=list)

    @property
    def is_near(self) -> bool:
        return self.host == "localhost" or self.host.startswith("127.") or self.host == "::1"

    @property
    def kept_s(self) -> float:
        return NEAR_KEPT_S if self.is_near else KEPT_S

    @property
    def where(self) -> str:
        """host:port, for messages: without a login that the address may contain."""
        return f"{self.host}:{self.port}"


class Pool:
    """Open and idle connections. `socket`: as in Upstream. The owner must `close` it."""

    def __init__(self, socket: str | None = None) -> None:
        self._socket = socket
        self._origins: dict[str, Origin] = {}
        """By root. Origins without an idle connection are forgotten: each start of an engine has a port of its own."""
        self._open: set[EngineConnection] = set()
        self._all_closed = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    def origin(self, root: str) -> Origin:
        """Return the origin for `scheme://host:port`. Raises UpstreamError `engine_unreachable`: it is no address."""
        found = self._origins.get(root)
        if found is None:
            found = self._origins[root] = _origin(root)
        return found

    def free(self, origin: Origin) -> EngineConnection | None:
        """Take an idle connection; None when there is none."""
        while origin.free:
            connection = origin.free.pop()
            if connection.is_free:
                return connection
        return None

    async def fresh(self, origin: Origin, called: str | None = None) -> EngineConnection:
        """Open a new connection. `called`: name of the engine's profile, for error messages.

        Raises:
            UpstreamError: code `engine_unreachable`.
        """
        limit_s = CONNECT_S if origin.is_near else REMOTE_CONNECT_S
        try:
            async with asyncio.timeout(limit_s):
                connection = await self._connected(origin)
        except TimeoutError:
            raise _unreachable(origin, called, f"no connection within {limit_s:g} s") from None
        except OSError as error:
            raise _unreachable(origin, called, error.strerror or str(error)) from None
        self._open.add(connection)
        return connection

    async def _connected(self, origin: Origin) -> EngineConnection:
        def made() -> EngineConnection:
            return EngineConnection(origin.where, self._lost)

        loop = asyncio.get_running_loop()
        if self._socket is not None:
            return (await loop.create_unix_connection(made, self._socket))[1]
        tls = _tls() if origin.tls else None
        return (await loop.create_connection(made, origin.host, origin.port, ssl=tls))[1]

    def give_back(self, origin: Origin, connection: EngineConnection) -> None:
        """Keep a connection whose answer is over if it can be used again; otherwise cut it."""
        if not connection.is_free:
            connection.cut()
            return
        connection.renew()
        loop = asyncio.get_running_loop()
        connection.idle_since = loop.time()
        self._origins.setdefault(origin.root, origin).free.append(
            connection
        )  # the origin may have been forgotten meanwhile
        if self._timer is None:
            self._timer = loop.call_later(KEPT_S, self._sweep)

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = None
        for root, origin in list(self._origins.items()):
            since = loop.time() - origin.kept_s
            old = [one for one in origin.free if one.idle_since <= since]
            for connection in old:
                connection.cut()
            origin.free = [one for one in origin.free if one not in old and one.is_free]
            if not origin.free:
                del self._origins[root]
        if self._origins:
            self._timer = loop.call_later(KEPT_S, self._sweep)

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for connection in list(self._open):
            connection.cut()
        self._all_closed.clear()
        if self._open:
            await self._all_closed.wait()

    def _lost(self, connection: EngineConnection) -> None:
        self._open.discard(connection)
        if not self._open:
            self._all_closed.set()


@lru_cache(maxsize=1)
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()


def _origin(root: str) -> Origin:
    try:
        parts = urlsplit(root)
        host, port = parts.hostname, parts.port or _PORTS[parts.scheme]
    except (ValueError, KeyError):
        host = None
    if not host:
        raise UpstreamError(f"{root.rpartition('@')[2]!r} is no address of an engine.", code="engine_unreachable")
    return Origin(root, host, port, parts.scheme == "https", parts.netloc.rpartition("@")[2])


def _unreachable(origin: Origin, called: str | None, why: str) -> UpstreamError:
    return UpstreamError(
        f"{called} does not answer ({why})." if called else f"Nothing answers at {origin.where} ({why}).",
        code="engine_unreachable",
        hint="The engine has ended or does not listen yet; `sparkdash status` shows it.",
    )
