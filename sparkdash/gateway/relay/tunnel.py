"""A WebSocket is a plain tunnel after the engine's 101: its bytes pass unread in both directions.

It ends when either side closes, with its lease, when its key ends, and at the limits of the settings.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from urllib.parse import parse_qsl, urlencode

from sparkdash.errors import AdmissionError
from sparkdash.gateway.admission.access import key_check, offered_protocols
from sparkdash.gateway.http.headers import HeaderPairs
from sparkdash.gateway.relay.request_context import RequestContext
from sparkdash.units import MIB, duration
from sparkdash.upstream import UpgradedEngine

HANDSHAKE_S = 30.0
"""Seconds in which an engine answers the handshake."""
LOOK_S = 5.0
"""Seconds between two looks at a tunnel's silence, its bytes and its key."""
_PROTOCOLS = b"sec-websocket-protocol"
_HANDSHAKE = b"sec-websocket-"


def model_in_query(query: str) -> str | None:
    """Return the model that a request for a WebSocket names."""
    return dict(parse_qsl(query)).get("model")


def query_for_engine(query: str, model: str | None, names: tuple[str, ...]) -> str:
    """Return the query with the engine's own name of the model."""
    if model is None or not names or model in names:
        return query
    return urlencode([(key, names[0] if key == "model" else value) for key, value in parse_qsl(query, True)])


def handshake_headers(given: HeaderPairs, passed: HeaderPairs) -> list[tuple[bytes, bytes]]:
    """Build the handshake for the engine: the client's own, without its key and its page's origin.

    `given`: all of the client's headers; `passed`: those that cross the gateway in any request.
    """
    headers = [pair for pair in passed if pair[0] != b"origin" and not pair[0].startswith(_HANDSHAKE)]
    headers += [(b"connection", b"Upgrade"), (b"upgrade", b"websocket")]
    for name, value in given:
        if name == _PROTOCOLS:
            value = ", ".join(offered_protocols(value.decode("latin-1"))).encode("latin-1")
        if value and name.startswith(_HANDSHAKE):
            headers.append((name, value))
    return headers


class Tunnel:
    """Bytes between a client and an engine that both have left HTTP; `cancel` ends the request with an error."""

    def __init__(
        self, context: RequestContext, engine: UpgradedEngine, cancel: Callable[[BaseException], object]
    ) -> None:
        self._context = context
        self._engine = engine
        self._cancel = cancel
        self._loop = asyncio.get_running_loop()
        self._over = asyncio.Event()
        self._passed_bytes = 0
        self._active_at = self._loop.time()
        self._is_key_good = key_check(context.exchange.key, context.deps.keys, context.deps.clock)
        self._timer = self._loop.call_later(LOOK_S, self._look)

    async def run(self) -> None:
        """Pass bytes until either side has closed."""
        exchange, engine, client = self._context.exchange, self._engine, self._context.exchange.upgraded
        assert client is not None  # noqa: S101 - an engine is asked to switch for such a client alone
        exchange.on_disconnect(lambda _gone: self._over.set())
        try:
            with exchange.flow(engine, self._context.deps.settings.slow_client_s, self._cancel) as push:
                engine.flow(client.pause, client.resume)
                engine.pour(self._counted(push), self._over.set)
                client.pour(self._counted(engine.write))
                await self._over.wait()
        finally:
            self._timer.cancel()
        exchange.end_tunnel()

    def _counted(self, write: Callable[[bytes], object]) -> Callable[[bytes], None]:
        def passed(data: bytes) -> None:
            self._passed_bytes += len(data)
            self._active_at = self._loop.time()
            write(data)

        return passed

    def _look(self) -> None:
        if error := self._violation():
            self._cancel(error)
        else:
            self._timer = self._loop.call_later(LOOK_S, self._look)

    def _violation(self) -> AdmissionError | None:
        idle_s, limit_mib = self._context.deps.settings.socket_idle_s, self._context.deps.settings.socket_limit_mib
        if self._loop.time() - self._active_at >= idle_s:
            words = f"Nothing passed through this WebSocket for {duration(idle_s)}."
            return AdmissionError(words, code="socket_idle", status=408)
        if self._passed_bytes > limit_mib * MIB:
            words = f"More than {limit_mib} MiB passed through this WebSocket."
            return AdmissionError(words, code="socket_limit", status=413)
        if not self._is_key_good():
            return AdmissionError("The key of this WebSocket was revoked or has expired.", code="key_ended", status=401)
        return None
