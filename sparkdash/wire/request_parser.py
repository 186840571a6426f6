"""RequestParser: the requests of one connection, out of its bytes.

Owns: how large a request's head and the framing of its body may be, and which Upgrade requests are ignored: all but
those for WebSocket, whose further bytes are no HTTP.
Must not know in which order requests are answered, nor what is served.
"""

from __future__ import annotations

import asyncio

import httptools

from sparkdash.limits import HEAD
from sparkdash.wire.heads import Fields
from sparkdash.wire.request_channel import RequestChannel, UpgradedConnection, asks_for_websocket

PIECE = 16 * 1024
"""Bytes of a head that are read at once, where more have come."""
_LENGTH = b"content-length"


class RequestParser:
    """Parses with llhttp, whose callbacks are methods here: a connection inherits them, which saves a call per event.

    The connection defines what follows: `on_headers_complete`, `head_began`, `refuse_head`, `refuse_bytes`, and how it
    pauses.
    """

    transport: asyncio.Transport

    def __init__(self) -> None:
        self._parser = self._new_parser()
        self._head_size: int | None = 0
        """Bytes of the head that is being read; None while there is none."""
        self._unframed = 0
        """Bytes of framing since the body's last piece."""
        self._url = b""
        self._fields: Fields = []
        self._length: bytes | None = None
        self._receiving: RequestChannel | None = None
        """The request whose body comes."""
        self._reopened: RequestChannel | None = None
        """The request whose head is given to a new parser once more, for the sake of its body."""
        self._upgraded: UpgradedConnection | None = None
        """Set once the client's bytes are no HTTP any more."""

    def head_began(self) -> None:
        """React to the first bytes of a head."""
        raise NotImplementedError

    def refuse_head(self) -> None:
        """Refuse a head, or framing of a body, that is too large."""
        raise NotImplementedError

    def refuse_bytes(self) -> None:
        """Refuse bytes that are no request."""
        raise NotImplementedError

    def newest_request(self) -> RequestChannel:
        """Return the request whose head came last."""
        raise NotImplementedError

    def pause_reading(self) -> None:
        """Leave what the client sends in its socket."""
        raise NotImplementedError

    def resume_reading(self) -> None:
        """Read from the client again."""
        raise NotImplementedError

    def pause_writing(self) -> None:
        """Note that the client takes no more for now."""
        raise NotImplementedError

    def resume_writing(self) -> None:
        """Note that the client takes something again."""
        raise NotImplementedError

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of the connection."""
        raise NotImplementedError

    def _new_parser(self) -> httptools.HttpRequestParser:
        parser = httptools.HttpRequestParser(self)
        parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return parser

    def data_received(self, data: bytes) -> None:
        """Parse bytes; split a large piece while a head is read, so that the head's limit holds there too."""
        while len(data) > PIECE and self._receiving is None:
            self._parse(data[:PIECE])
            if self.transport.is_closing():
                return
            data = data[PIECE:]
            if self._upgraded is not None:
                self._upgraded.data_received(data)
                return
        self._parse(data)

    def _parse(self, data: bytes) -> None:
        """Pass bytes to the parser, and count those of a head or of a body's framing."""
        if self._unframed > HEAD or (self._head_size is not None and self._head_size > HEAD):
            self.refuse_head()
            return
        self._unframed += len(data)
        try:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                self._on_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserError:
            self.refuse_bytes()
            return
        if self._head_size is not None:
            if self._head_size == 0:
                self.head_began()
            self._head_size += len(data)

    def _on_upgrade(self, rest: bytes) -> None:
        """Go on with HTTP/1.1 after an Upgrade request, with a new parser that is told the body's framing.

        After one for WebSocket, `rest` and all that follows is kept for the request's application.

        Java's clients ask for HTTP/2 with the first request of each connection. The parser stops at the end of such a
        head, and takes the body for the other protocol.

        Raises:
            HttpParserError: as the first parser would have.
        """
        while True:
            channel = self.newest_request()
            if asks_for_websocket(channel.head, channel.length):
                self._hand_over(channel, rest)
                return
            self._parser = self._new_parser()
            if framing := channel.reopen_body():
                self._reopened, rest = channel, b"POST / HTTP/1.1\r\n%b\r\n\r\n%b" % (framing, rest)
            try:
                self._parser.feed_data(rest)
            except httptools.HttpParserUpgrade as upgrade:
                rest = rest[upgrade.args[0] :]
            else:
                return

    def _hand_over(self, channel: RequestChannel, rest: bytes) -> None:
        """Give the socket to the request that asks for a WebSocket; where it is refused, the connection ends."""
        channel.keeps = False
        channel.upgraded = self._upgraded = UpgradedConnection(self, rest)
        self.transport.set_protocol(self._upgraded)

    # Callbacks of the parser.

    def on_message_begin(self) -> None:
        """Begin a request."""
        self._url, self._fields, self._length, self._head_size, self._unframed = b"", [], None, 0, 0

    def on_url(self, url: bytes) -> None:
        """Add a piece of the URL."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; trailers after a chunked body are dropped."""
        if self._head_size is None:
            return
        name = name.lower()
        if name == _LENGTH:
            self._length = value
        else:
            self._fields.append((name, value))

    def on_body(self, body: bytes) -> None:
        """Pass on a piece of the body."""
        self._unframed = 0
        if self._receiving is not None:
            self._receiving.feed_body(body)

    def on_message_complete(self) -> None:
        """Mark the end of the body."""
        if self._receiving is not None:
            self._receiving.mark_body_complete()
            self._receiving = None
