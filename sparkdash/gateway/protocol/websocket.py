"""WebSocket: frames of RFC 6455, as far as a relay must see them, and the words of a close.

Owns: where a frame begins and ends in a stream of bytes, masks, and which code and reason tell a client of an error.
Must not know what messages mean (`realtime` does). Extensions are never negotiated, so a frame's payload is plain.
Rule: a frame up to FRAME_KEPT is given whole; of a larger one the bytes pass as they come, so that it takes no memory.

Pure.
"""

from __future__ import annotations

import base64
import hashlib
from http import HTTPStatus
from typing import NamedTuple

from sparkdash.errors import SparkdashError
from sparkdash.gateway.protocol.problems import CUT

FRAME_KEPT = 64 * 1024
"""Bytes of the largest payload that is looked at."""
CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA
_KNOWN = frozenset({CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG})
CONTROL_LIMIT = 125
"""Bytes of a control frame's payload (section 5.5)."""
NORMAL, GOING_AWAY, PROTOCOL_ERROR, NO_CODE, POLICY, TOO_BIG = 1000, 1001, 1002, 1005, 1008, 1009
INTERNAL, RESTART, TRY_AGAIN = 1011, 1012, 1013
UNAUTHORIZED, FORBIDDEN, TIMEOUT = 3000, 3003, 3008
"""Close codes of the IANA registry; those from 3000 on repeat the status of HTTP."""
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_BY_STATUS = {401: UNAUTHORIZED, 403: FORBIDDEN, 408: TIMEOUT, 413: TOO_BIG, 429: TRY_AGAIN}


class WebSocketError(Exception):
    """Violation of the protocol by a peer; the text is the reason of the close."""


class SocketFrame(NamedTuple):
    """Whole frame. `raw`: as it came; `payload`: without its mask."""

    opcode: int
    is_final: bool
    payload: bytes
    raw: bytes

    @property
    def is_whole_text(self) -> bool:
        """Whether the frame is a text message in one piece."""
        return self.opcode == TEXT and self.is_final


class FrameReader:
    """Splits the bytes of one direction into frames. `masked`: the sender is a client, which must mask."""

    def __init__(self, *, masked: bool) -> None:
        self._masked = masked
        self._kept = bytearray()
        """Beginning of a frame whose end has not come."""
        self._needed = 0
        """Bytes that `_kept` must have before it is looked at again."""
        self._passing = 0
        """Bytes still to come of a frame that passes."""

    @property
    def is_passing(self) -> bool:
        """Whether a large frame passes: no other frame may be put in before its end."""
        return self._passing > 0

    def feed(self, data: bytes) -> list[SocketFrame | bytes]:
        """Return what these bytes complete, in order: whole frames, and pieces of those that pass.

        Raises:
            WebSocketError: the sender violates the protocol.
        """
        found: list[SocketFrame | bytes] = []
        at = min(self._passing, len(data))
        if at:
            found.append(data[:at])
            self._passing -= at
        if self._kept:
            self._kept += data
            if len(self._kept) < self._needed:
                return found
            data, at = bytes(self._kept), 0
        self._needed = 0
        while (size := _frame_size(data, at, masked=self._masked)) is not None:
            head, payload = size
            end = at + head + payload
            if payload > FRAME_KEPT:
                found.append(data[at:end])
                self._passing = max(0, end - len(data))
                at = min(end, len(data))
            elif end <= len(data):
                found.append(_frame(data[at:end], head, masked=self._masked))
                at = end
            else:
                self._needed = head + payload
                break
        self._kept = bytearray(data[at:])
        return found


def _frame_size(data: bytes, at: int, *, masked: bool) -> tuple[int, int] | None:
    """Read the sizes of the head and the payload of the frame at this place; None: more must come."""
    there = len(data) - at
    if there < 2:
        return None
    first, second = data[at], data[at + 1]
    _check_head(first, second, masked=masked)
    short = second & 0x7F
    extended = {126: 2, 127: 8}.get(short, 0)
    if there < 2 + extended:
        return None
    size = int.from_bytes(data[at + 2 : at + 2 + extended], "big") if extended else short
    if size >> 63:
        raise WebSocketError("a frame's length has its highest bit set")
    head = 2 + extended + (4 if masked else 0)
    return None if there < head else (head, size)


def _check_head(first: int, second: int, *, masked: bool) -> None:
    opcode = first & 0x0F
    if first & 0x70 or opcode not in _KNOWN:
        raise WebSocketError("a frame has reserved bits or an unknown opcode")
    if bool(second & 0x80) is not masked:
        raise WebSocketError("a client's frame must be masked, a server's must not")
    if opcode >= CLOSE and (second & 0x7F > CONTROL_LIMIT or not first & 0x80):
        raise WebSocketError("a control frame is too long or in pieces")


def _frame(raw: bytes, head: int, *, masked: bool) -> SocketFrame:
    payload = raw[head:]
    if masked:
        payload = _mask(payload, raw[head - 4 : head])
    return SocketFrame(raw[0] & 0x0F, bool(raw[0] & 0x80), payload, raw)


def _mask(payload: bytes, key: bytes) -> bytes:
    """Apply the mask, or take it off."""
    size = len(payload)
    repeated = (key * (size // 4 + 1))[:size]
    return (int.from_bytes(payload, "little") ^ int.from_bytes(repeated, "little")).to_bytes(size, "little")


def encode_frame(opcode: int, payload: bytes = b"", mask: bytes = b"") -> bytes:
    """Build a frame in one piece. `mask`: four bytes, for a frame to a server."""
    size, bit = len(payload), 0x80 if mask else 0
    if size <= CONTROL_LIMIT:
        length = bytes((bit | size,))
    elif size < 1 << 16:
        length = bytes((bit | 126,)) + size.to_bytes(2, "big")
    else:
        length = bytes((bit | 127,)) + size.to_bytes(8, "big")
    return bytes((0x80 | opcode,)) + length + mask + (_mask(payload, mask) if mask else payload)


def close_payload(code: int, reason: str) -> bytes:
    """Build the payload of a close frame; a longer reason is cut, between two characters."""
    words = reason.encode("utf-8", "replace")[: CONTROL_LIMIT - 2]
    return code.to_bytes(2, "big") + words.decode("utf-8", "ignore").encode()


def close_code(payload: bytes) -> int:
    """Read the code of a close frame; NO_CODE where it has none."""
    return int.from_bytes(payload[:2], "big") if len(payload) >= 2 else NO_CODE


def error_close(error: SparkdashError) -> bytes:
    """Build the payload of the close that ends a WebSocket with this error: code, and `code: message`."""
    return close_payload(_code_of(error), f"{error.code}: {error.message}")


def _code_of(error: SparkdashError) -> int:
    if error.code == CUT:
        return RESTART
    if error.retry_after is not None:
        return TRY_AGAIN
    usual = POLICY if error.status < HTTPStatus.INTERNAL_SERVER_ERROR else INTERNAL
    return _BY_STATUS.get(error.status, usual)


def accept_value(key: str) -> bytes:
    """Compute Sec-WebSocket-Accept for a client's key (section 4.2.2)."""
    return base64.b64encode(hashlib.sha1(key.strip().encode("latin-1") + _GUID, usedforsecurity=False).digest())
