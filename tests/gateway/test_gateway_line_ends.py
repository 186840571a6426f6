"""An event stream means the same whichever of the three line ends it has, and wherever its bytes are cut."""

import random
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from recorded_streams import PATHS, cut, dialect_of

from sparkdash.domain.request import RequestState
from sparkdash.gateway.protocol.route import Dialect
from sparkdash.gateway.protocol.splices import ContinuedMessage, ContinuedResponse, Splice, WithoutUsage, mirror_splice
from sparkdash.gateway.protocol.tap import Tap
from sparkdash.sse import Frame, Frames

ENDS = {"lf": b"\n", "crlf": b"\r\n", "cr": b"\r", "mixed": b""}
SPLICES: dict[str, Callable[[], Splice]] = {
    "without usage": WithoutUsage,
    "response": lambda: ContinuedResponse("resp_ours", 3),
    "message": ContinuedMessage,
    "mirror": lambda: mirror_splice(stream=True, before=None),
}
COUNTS = b'data: {"id":"c","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}\n\n'
BEFORE = b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"a"}}]}\n\n'
AFTER = b"data: [DONE]\n\n"


def ended(body: bytes, ends: str) -> bytes:
    """The stream with other line ends; mixed ones never let a bare CR and an LF meet, which together are one."""
    dice, before = random.Random(len(body)), b""

    def end(_: re.Match[bytes]) -> bytes:
        nonlocal before
        before = ENDS[ends] or dice.choice((b"\r", b"\r\n") if before == b"\r" else (b"\n", b"\r", b"\r\n"))
        return before

    return re.sub(rb"\n", end, body)


def short(body: bytes) -> bytes:
    """A stream's first and last frames: what is looked for, without the text between."""
    frames = body.split(b"\n\n")
    return b"\n\n".join((*frames[:5], *frames[-6:])) if len(frames) > 12 else body


def cuts(body: bytes) -> Iterator[list[bytes]]:
    """Byte by byte, in two around every line end and at every 97th byte, and in random pieces."""
    yield [body[at : at + 1] for at in range(len(body))]
    ends = {at + step for at in (m.start() for m in re.finditer(rb"[\r\n]", body)) for step in (0, 1)}
    for at in sorted((ends | set(range(1, len(body), 97))) - {0, len(body)}):
        yield [body[:at], body[at:]]
    for seed in range(10):
        yield cut(body, random.Random(seed))


def events(body: bytes) -> list[Frame]:
    """Events that a client's parser makes of a stream that has ended."""
    reader = Frames()
    return [*reader.feed(body), *reader.feed(b"\n")]  # the parser waits for what may follow a last CR


def heard(dialect: Dialect, pieces: list[bytes]) -> tuple[Any, ...]:
    tap = Tap(dialect)
    for tick, piece in enumerate(pieces):
        tap.feed(piece, float(tick))
    return (
        tap.usage(), tap.finish_reason, tap.complete, tap.failed, tap.lacks_its_end, tap.between_frames, tap.sequence,
        tap.response_id, tap.first is not None,
    )  # fmt: skip


@pytest.mark.parametrize("ends", ENDS)
def test_what_is_read_of_a_stream_does_not_depend_on_its_line_ends(
    recorded_body: Any, streams: list[str], ends: str
) -> None:
    """Counts, reason, end and failure of every recorded stream, cut everywhere."""
    for name in streams:
        dialect, body = dialect_of(name), short(recorded_body(name))
        expected = heard(dialect, [body])
        for pieces in cuts(ended(body, ends)):
            assert heard(dialect, pieces) == expected, (name, pieces[0][-20:])


@pytest.mark.parametrize("ends", ENDS)
@pytest.mark.parametrize("error", [
    b'data: {"error":{"message":"x"}}\n\n', b"event: error\ndata: {}\n\n", b'error: {"message":"x"}\n\n',
    b'error:{"code":400}\n\n',
])  # fmt: skip
def test_a_failure_in_the_stream_is_seen_with_all_line_ends(ends: str, error: bytes) -> None:
    """In a chat's form, in that of messages and in that of llama-server before September 2025, cut everywhere."""
    for pieces in cuts(ended(BEFORE + error, ends)):
        assert heard(Dialect.CHAT, pieces)[3] is True


@pytest.mark.parametrize("ends", list(ENDS))
@pytest.mark.parametrize("splice", SPLICES)
def test_what_is_changed_in_a_stream_does_not_depend_on_its_line_ends(
    recorded_body: Any, streams: list[str], splice: str, ends: str
) -> None:
    """The client's parser gets the same events, cut everywhere."""
    for name in streams:
        body = short(recorded_body(name))
        one = SPLICES[splice]()
        expected = events(one.feed(body) + one.end())
        for pieces in cuts(ended(body, ends)):
            one = SPLICES[splice]()
            assert events(b"".join([*map(one.feed, pieces), one.end()])) == expected, (name, pieces[0][-20:])


@pytest.mark.parametrize("ends", list(ENDS))
@pytest.mark.parametrize("field", [b"id: 7\n", b"retry: 100\n", b": note\n", b"event: chunk\n", b"id\nretry:1\n"])
def test_the_counts_are_taken_out_whatever_field_comes_with_them(field: bytes, ends: str) -> None:
    """Before the data or after it; what stands around passes byte for byte."""
    for frame in (field + COUNTS, COUNTS[:-1] + field + b"\n"):
        body = ended(BEFORE + frame + AFTER, ends)
        for pieces in cuts(body):
            splice = WithoutUsage()
            got = b"".join([*map(splice.feed, pieces), splice.end()])
            assert events(got) == events(BEFORE + AFTER)
            assert (ends == "mixed") or got == ended(BEFORE + AFTER, ends)


@pytest.mark.parametrize("ends", ["lf", "crlf", "cr"])
def test_a_whole_frame_leaves_at_once_with_any_line_end(ends: str) -> None:
    """With the chunk that ends it, as the same object: the text is not held back until the next one comes."""
    splice, frame = WithoutUsage(), ended(BEFORE, ends)
    assert splice.feed(frame) is frame
    assert splice.feed(frame[:9]) == b""
    assert splice.feed(frame[9:]) == frame


def test_the_counts_of_a_message_keep_the_fields_around_them() -> None:
    """Only the JSON object is written anew."""
    start = b'event: message_start\ndata: {"type":"message_start","message":{"usage":{"input_tokens":9}}}\n\n'
    delta = b': {a note}\nevent: message_delta\ndata: {"type":"message_delta","usage":{"output_tokens":2}}\nid: 7\n\n'
    splice = ContinuedMessage()
    splice.feed(start)
    assert splice.feed(delta) == delta.replace(b'{"output', b'{"input_tokens":9,"output')
    assert splice.feed(b"event: message_delta\ndata: none\n\n") == b"event: message_delta\ndata: none\n\n"


@pytest.mark.parametrize("ends", ["crlf", "cr"])
@pytest.mark.parametrize(
    "name",
    ["vllm-0.32.0-base-responses-stream", "vllm-0.32.0-base-messages-stream", "llama.cpp-0c1e57098-base-chat-stream"],
)
async def test_a_completed_stream_ends_as_its_engine_ended_it(
    house: Any, recorded_body: Any, name: str, ends: str
) -> None:
    """Nothing is appended, its row says done, also where only the connection's end tells that the answer is over."""
    body = ended(recorded_body(name), ends)

    async def script(_seen: Any, wire: Any) -> None:
        await wire.raw(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n" + body)
        wire.writer.close()

    house.engine.script = script
    asked = {"model": "alpha", "stream": True, "stream_options": {"include_usage": True}}
    reply = await house.client.post(PATHS[dialect_of(name)], json=asked)
    assert reply.content == body
    row = await house.ended()
    assert (row.state, row.error) == (RequestState.DONE, None)
    assert row.completion_tokens == 80
