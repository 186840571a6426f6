"""ResponseParser: the answers on one connection to an engine, out of its bytes.

Owns: what is parsed of an answer's head, and how the answer tells its own end. Must not know who takes the body.
"""

from __future__ import annotations

import asyncio

import httptools

from sparkdash.upstream.response_head import Header, ResponseHead

SWITCHED = 101
_LENGTH = b"content-length"


class ResponseParser:
    """Parses with llhttp, whose callbacks are methods here: a connection inherits them, so that no call stands
    between.
    """

    def __init__(self) -> None:
        self.status = 0
        """0 until the answer's head is complete; from then on `head`, `length` and `framed` are known."""
        self.head = ResponseHead([])
        self.length: int | None = None
        """Bytes of the body, where the answer says so before it."""
        self.framed = False
        """Whether the answer tells its own end, by a length or by chunks. Otherwise the connection's end is the
        answer's, and an engine's death looks the same.
        """
        self._fields: list[Header] = []
        self._length: bytes | None = None
        self._pieces: list[bytes] = []
        self.on_body = self._pieces.append  # the parser's callback: nothing of ours runs per HTTP chunk
        self._bodiless = self._upgrades = False
        self._complete = False
        self._reusable = False
        self._upload_may_go_on: asyncio.Event | None = None
        """Event of an upload; unset while the engine takes no more."""
        self._parser = httptools.HttpResponseParser(self)
        self._parser.set_dangerous_leniencies(lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True)

    def on_message_begin(self) -> None:
        """Begin an answer. Raise for a second one, so that the parser stops and the connection is not used again."""
        if self._complete:
            raise ValueError("a second answer")
        self._fields, self._length = [], None

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; trailers are dropped."""
        if self.status:
            return
        name = name.lower()
        if name == _LENGTH:
            self._length = value
        else:
            self._fields.append((name, value))

    def on_headers_complete(self) -> None:
        """Complete the head; an interim one (1xx) only announces another."""
        status = self._parser.get_status_code()
        if status < 200 and not (status == SWITCHED and self._upgrades):
            return
        if self.head.headers != self._fields:
            self.head = ResponseHead(self._fields)
        self.length = None if self._length is None else int(self._length)
        self.framed = self.head.is_chunked or self._length is not None or self._bodiless or status in (204, 304)
        self.status = status
        if self._bodiless:
            self._complete = True
        if self._upload_may_go_on is not None:
            self._upload_may_go_on.set()

    def on_message_complete(self) -> None:
        """Complete the answer."""
        if self.status and not self._complete:
            self._complete = True
            self._reusable = self._parser.should_keep_alive()
