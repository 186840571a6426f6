"""SocketPassage: frames between a client and the engine that has taken its WebSocket over, and how long they may pass.

Owns: which frames are changed or counted, the close of either side, and the limits of an open WebSocket. Must not know
how the engine was got.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from sparkdash.errors import AdmissionError
from sparkdash.gateway.admission.access import key_check
from sparkdash.gateway.http.client_socket import CLOSE_S, ClientSocket, Piece
from sparkdash.gateway.protocol import realtime
from sparkdash.gateway.protocol.websocket import CLOSE, TEXT, FrameReader, SocketFrame, WebSocketError, encode_frame
from sparkdash.gateway.relay.cancel_scope import CancelScope
from sparkdash.gateway.relay.request_context import RequestContext
from sparkdash.units import MIB, duration
from sparkdash.upstream import EngineSocket

PING_S = 20.0
"""Seconds without a byte to the client after which it gets a ping: middleboxes forget silent connections."""
LOOK_S = 5.0
"""Seconds between two looks at a WebSocket's age, at its key and at its silence."""


class SocketPassage:
    """Frames between a client and the engine that has taken over. `names`: the engine's own names of its model."""

    def __init__(
        self,
        client: ClientSocket,
        engine: EngineSocket,
        tap: realtime.RealtimeTap,
        scope: CancelScope,
        names: tuple[str, ...],
    ) -> None:
        self._client = client
        self._engine = engine
        self._tap = tap
        self._scope = scope
        self._names = names
        self._reader = FrameReader(masked=False)
        self._push: Callable[[bytes], object]
        self._loop = asyncio.get_running_loop()
        self._over: asyncio.Future[None] = self._loop.create_future()
        self._timer: asyncio.TimerHandle | None = None
        self.passed_bytes = 0
        """Bytes of messages in both directions."""
        self.active_at = self._loop.time()
        """Time of the last message in either direction, by the loop's clock."""
        self.heard_at: float | None = None
        """Time of the engine's last byte."""

    @property
    def is_mid_frame(self) -> bool:
        """Whether the client waits for the end of a large frame."""
        return self._reader.is_passing

    async def run(self, push: Callable[[bytes], object]) -> None:
        """Pass frames until both sides have closed. `push` writes to the client."""
        self._push = push
        self._engine.flow(self._client.pause, self._client.resume)
        self._client.listen(self._on_client_piece)
        self._engine.pour(self._on_engine_bytes, self._on_engine_end)
        try:
            await self._over
        finally:
            if self._timer is not None:
                self._timer.cancel()

    def _on_client_piece(self, piece: Piece) -> None:
        raw = piece if isinstance(piece, bytes) else piece.raw
        if isinstance(piece, SocketFrame) and piece.is_whole_text and self._names:
            changed = realtime.renamed_session(piece.payload, self._names, self._names[0])
            raw = raw if changed is None else encode_frame(TEXT, changed, os.urandom(4))
        self._engine.write(raw)
        self._note(piece)
        if isinstance(piece, SocketFrame) and piece.opcode == CLOSE:
            self._closing()

    def _on_engine_bytes(self, data: bytes) -> None:
        if self._client.close_sent is not None:
            return
        self.heard_at = self._loop.time()
        try:
            pieces = self._reader.feed(data)
        except WebSocketError as error:
            self._scope.cancel(self._engine.died(f"sent a wrong WebSocket: {error}"))
            return
        for piece in pieces:
            self._note(piece)
            if isinstance(piece, SocketFrame) and piece.is_whole_text:
                self._tap.feed(piece.payload)
        self._push(b"".join(piece if isinstance(piece, bytes) else piece.raw for piece in pieces))
        self._client.note_sent(pieces)
        if self._client.close_sent is not None:
            self._closing()

    def _note(self, piece: Piece) -> None:
        """Count a message; control frames are none."""
        if isinstance(piece, bytes) or piece.opcode < CLOSE:
            self.passed_bytes += len(piece if isinstance(piece, bytes) else piece.payload)
            self.active_at = self._loop.time()

    def _closing(self) -> None:
        """End once both sides have closed, and at the latest after CLOSE_S."""
        if self._client.close_sent is not None and self._client.close_received is not None:
            self._end()
        elif self._timer is None:
            self._timer = self._loop.call_later(CLOSE_S, self._end)

    def _on_engine_end(self) -> None:
        if self._client.close_received is not None:
            self._client.close(self._client.close_received)
            self._end()
        elif self._client.close_sent is not None:
            self._end()
        else:
            self._scope.interrupt(self._engine.died("closed the WebSocket in the middle of the conversation"))

    def _end(self) -> None:
        if not self._over.done():
            self._over.set_result(None)


class SocketLimits:
    """Looks every LOOK_S whether an open WebSocket may stay open, and pings a silent client."""

    def __init__(
        self, context: RequestContext, client: ClientSocket, passage: SocketPassage, scope: CancelScope
    ) -> None:
        deps = context.deps
        self._idle_s = deps.settings.socket_idle_s
        self._limit_mib = deps.settings.socket_limit_mib
        self._is_key_good = key_check(context.exchange.key, deps.keys, deps.clock)
        self._client = client
        self._passage = passage
        self._scope = scope
        self._loop = asyncio.get_running_loop()
        self._period_s = min(LOOK_S, self._idle_s / 2)
        self._timer = self._loop.call_later(self._period_s, self._look)

    def stop(self) -> None:
        """Look no more."""
        self._timer.cancel()

    def _look(self) -> None:
        if error := self._violation():
            self._scope.cancel(error)
            return
        if self._loop.time() - self._client.sent_at >= PING_S and not self._passage.is_mid_frame:
            self._client.ping()
        self._timer = self._loop.call_later(self._period_s, self._look)

    def _violation(self) -> AdmissionError | None:
        if self._loop.time() - self._passage.active_at >= self._idle_s:
            return AdmissionError(
                f"No message passed through this WebSocket for {duration(self._idle_s)}.",
                code="socket_idle",
                status=408,
                hint="Open a new one; socket_idle_s in config.toml sets the limit.",
            )
        if self._passage.passed_bytes > self._limit_mib * MIB:
            return AdmissionError(
                f"More than {self._limit_mib} MiB passed through this WebSocket.",
                code="socket_limit",
                status=413,
                hint="Open a new one; socket_limit_mib in config.toml sets the limit.",
            )
        if not self._is_key_good():
            return AdmissionError("The key of this WebSocket was revoked or has expired.", code="key_ended", status=401)
        return None
