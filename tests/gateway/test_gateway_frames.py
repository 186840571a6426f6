"""Frames of WebSockets: read however the bytes are cut, and the words of a close."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkdash.errors import AdmissionError, EngineError, UpstreamError
from sparkdash.gateway.protocol.websocket import (
    BINARY,
    CLOSE,
    FRAME_KEPT,
    PING,
    TEXT,
    FrameReader,
    SocketFrame,
    WebSocketError,
    close_code,
    encode_frame,
    error_close,
)

SIZES = st.sampled_from([0, 1, 125, 126, 127, 65535, FRAME_KEPT, FRAME_KEPT + 1, 70_000])


@given(
    st.lists(st.tuples(st.sampled_from([TEXT, BINARY, PING, CLOSE]), SIZES), max_size=5),
    st.booleans(),
    st.integers(1, 50_000),
)
def test_frames_read_the_same_however_they_are_cut(wanted: list[tuple[int, int]], masked: bool, cut: int) -> None:
    frames = [(opcode, bytes(min(size, 125) if opcode >= CLOSE else size)) for opcode, size in wanted]
    sent = b"".join(encode_frame(opcode, payload, b"abcd" if masked else b"") for opcode, payload in frames)
    reader, found = FrameReader(masked=masked), []
    for at in range(0, len(sent), cut):
        found += reader.feed(sent[at : at + cut])
    assert b"".join(piece if isinstance(piece, bytes) else piece.raw for piece in found) == sent
    whole = [(piece.opcode, piece.payload) for piece in found if isinstance(piece, SocketFrame)]
    assert whole == [frame for frame in frames if len(frame[1]) <= FRAME_KEPT]
    assert not reader.is_passing


def test_a_large_frame_is_never_kept() -> None:
    """Its bytes pass as they come; nothing may be put in before its end."""
    reader = FrameReader(masked=False)
    sent = encode_frame(BINARY, bytes(10_000_000))
    assert sum(len(piece) for piece in reader.feed(sent[:9_000_000])) == 9_000_000
    assert reader.is_passing
    reader.feed(sent[9_000_000:])
    assert not reader.is_passing


@pytest.mark.parametrize(
    "data", [b"\xc1\x00", b"\x83\x00", b"\x89\x7e\x00\x7e", b"\x09\x00", b"\x81\x81abcd", b"\x82\x7f" + b"\xff" * 8]
)
def test_what_is_no_frame_is_refused(data: bytes) -> None:
    """Reserved bits, an unknown opcode, a long ping, one in pieces, a masked one of a server, an endless one."""
    with pytest.raises(WebSocketError):
        FrameReader(masked=False).feed(data)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (AdmissionError("x", status=401), 3000),
        (AdmissionError("x", status=403), 3003),
        (AdmissionError("x", status=404), 1008),
        (AdmissionError("x", status=429), 1013),
        (AdmissionError("x", status=503, retry_after=3), 1013),
        (EngineError("x", code="cut"), 1012),
        (EngineError("x"), 1011),
        (UpstreamError("x", code="engine_died"), 1011),
    ],
)
def test_each_error_has_its_code(error: Exception, code: int) -> None:
    assert close_code(error_close(error)) == code  # type: ignore[arg-type]


def test_a_long_reason_is_cut_between_two_characters() -> None:
    payload = error_close(AdmissionError("ä" * 200, code="x"))
    assert len(payload) <= 125
    assert payload[2:].decode().startswith("x: ä")
