"""ClientSocket: the client's end of a WebSocket.

Owns: the handshake's answer, frames from and to the client, what it sends before an engine takes it, pings and the
close. Must not know engines or leases.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from sparkdash.errors import AdmissionError, SparkdashError
from sparkdash.gateway.http.exchange import Exchange
from sparkdash.gateway.http.flow_control import ClientGone
from sparkdash.gateway.protocol import realtime
from sparkdash.gateway.protocol.websocket import (
    CLOSE,
    NO_CODE,
    PING,
    PONG,
    PROTOCOL_ERROR,
    TEXT,
    FrameReader,
    SocketFrame,
    WebSocketError,
    accept_value,
    close_code,
    close_payload,
    encode_frame,
    error_close,
)
from sparkdash.wire import ResponseHeaders

VERSION = "13"
PING_PAYLOAD = b"sparkdash"
EARLY_LIMIT = 256 * 1024
"""Bytes of messages that wait for an engine; further ones wait in the client's socket."""
CLOSE_S = 5.0
"""Seconds in which a client answers a close."""

Piece = SocketFrame | bytes


def check_handshake(exchange: Exchange) -> None:
    """Check the version of a WebSocket's handshake.

    Raises:
        AdmissionError: code `websocket_version`, status 426.
    """
    version = exchange.head.headers.get(b"sec-websocket-version")
    if version != VERSION:
        exchange.set_extra_headers(((b"sec-websocket-version", VERSION.encode()),))
        raise AdmissionError(
            f"This WebSocket's version is {version or 'missing'}.",
            code="websocket_version",
            status=426,
            hint=f"sparkdash speaks version {VERSION}.",
        )


class ClientSocket:
    """WebSocket of one client, from the request for it on.

    `end` is called with the reason when the client violates the protocol, or closes before it is listened to.
    """

    def __init__(self, exchange: Exchange, end: Callable[[BaseException], object]) -> None:
        assert exchange.upgraded is not None  # noqa: S101 - the caller has seen the request for it
        self._exchange = exchange
        self._end = end
        self._closed = asyncio.Event()
        """Set when the client has closed its side."""
        self._incoming = exchange.upgraded
        self._headers = exchange.head.headers
        self._reader = FrameReader(masked=True)
        self._early: list[Piece] = []
        self._early_bytes = 0
        self._listener: Callable[[Piece], object] | None = None
        self.offered = realtime.offered_protocols(self._headers.get(b"sec-websocket-protocol"))
        """Subprotocols that the client offers, its key left out."""
        self.is_open = False
        """Whether the handshake was answered with 101."""
        self.close_sent: int | None = None
        """Code of the close that went to the client."""
        self.close_received: int | None = None
        """Code of the close that came from the client."""
        self.is_page = b"origin" in self._headers
        """Whether a web page asks: it never sees the status of a refused handshake."""
        self.sent_at = 0.0
        """Time of the last byte to the client, by the loop's clock."""

    def accept(self, protocol: str | None = None) -> None:
        """Answer the handshake, once. `protocol`: the subprotocol; not given: the first that was offered."""
        if self.is_open:
            return
        self.is_open = True
        key = self._headers.get(b"sec-websocket-key") or ""
        chosen = protocol or next(iter(self.offered), None)
        named = [] if chosen is None else [(b"sec-websocket-protocol", chosen.encode("latin-1"))]
        self._exchange.switch_protocols(
            ResponseHeaders(
                [
                    (b"upgrade", b"websocket"),
                    (b"connection", b"Upgrade"),
                    (b"sec-websocket-accept", accept_value(key)),
                    *named,
                ]
            )
        )
        self.sent_at = asyncio.get_running_loop().time()
        self._incoming.pour(self._on_bytes)

    def listen(self, listener: Callable[[Piece], object]) -> None:
        """Give `listener` what has come so far, and then each piece as it comes; the socket must be open."""
        self._listener = listener
        early, self._early, self._early_bytes = self._early, [], 0
        for piece in early:
            listener(piece)
        self._incoming.resume()

    def pause(self) -> None:
        """Leave what the client sends in its socket."""
        self._incoming.pause()

    def resume(self) -> None:
        """Read from the client again."""
        self._incoming.resume()

    def note_sent(self, frames: list[Piece]) -> None:
        """Note what an engine's frames tell the client: that bytes went out, and a close."""
        self.sent_at = asyncio.get_running_loop().time()
        for frame in frames:
            if isinstance(frame, SocketFrame) and frame.opcode == CLOSE:
                self.close_sent = close_code(frame.payload)

    def ping(self) -> None:
        """Send a ping. Call between two frames."""
        self._send(PING, PING_PAYLOAD)

    def fail(self, error: SparkdashError, *, tells_event: bool) -> None:
        """Close with the code and the reason of an error. `tells_event`: an error event goes before."""
        if self.close_sent is None:
            if tells_event:
                self._send(TEXT, realtime.error_event(error))
            payload = error_close(error)
            self._send(CLOSE, payload)
            self.close_sent = close_code(payload)

    def close(self, code: int, reason: str = "") -> None:
        """Close with this code."""
        if self.close_sent is None:
            self._send(CLOSE, b"" if code == NO_CODE else close_payload(code, reason))
            self.close_sent = code

    async def finish(self) -> None:
        """Close the connection once the client has answered the close, or after CLOSE_S.

        Closing while its bytes wait unread would reset the connection, and the client would never read the reason.
        """
        self.listen(_drop_piece)
        self._exchange.on_disconnect(lambda _gone: self._closed.set())
        with suppress(TimeoutError):
            await asyncio.wait_for(self._closed.wait(), CLOSE_S)
        self.end()

    def end(self) -> None:
        """Close the connection once everything was sent."""
        self._incoming.drop()
        if not self._exchange.finished:
            self._exchange.end_socket()

    def _send(self, opcode: int, payload: bytes) -> None:
        self.sent_at = asyncio.get_running_loop().time()
        self._exchange.write_raw(encode_frame(opcode, payload))

    def _on_bytes(self, data: bytes) -> None:
        if self.close_received is not None:
            return
        try:
            for piece in self._reader.feed(data):
                self._on_piece(piece)
        except WebSocketError as error:
            self.close_received = PROTOCOL_ERROR
            self._closed.set()
            self.close(PROTOCOL_ERROR, str(error))
            self._end(AdmissionError(f"The client's WebSocket is wrong: {error}.", code="websocket_protocol"))

    def _on_piece(self, piece: Piece) -> None:
        if isinstance(piece, SocketFrame):
            if piece.opcode == PONG and piece.payload == PING_PAYLOAD:
                return
            if piece.opcode == CLOSE:
                self.close_received = close_code(piece.payload)
                self._closed.set()
                if self._listener is None:
                    self.close(self.close_received)
                    self._end(ClientGone())
            elif piece.opcode == PING and self._listener is None:
                self._send(PONG, piece.payload)
                return
        if self._listener is not None:
            self._listener(piece)
            return
        self._early.append(piece)
        self._early_bytes += len(piece if isinstance(piece, bytes) else piece.raw)
        if self._early_bytes > EARLY_LIMIT:
            self._incoming.pause()


def _drop_piece(_piece: Piece) -> None:
    """Drop what a client sends behind the end."""
