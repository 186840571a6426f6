"""Server-sent events and lines out of bytes."""

import pytest

from sparkdash.sse import Frame, Frames, Lines

STREAM = 'event: fact\nid: 7\ndata: {"text": "a\u2028b\u0085c"}\n\n: ping\n\ndata: one\r\ndata: two\r\n\r\n'.encode()


def test_events_are_whole_wherever_the_network_cuts_them() -> None:
    """One byte at a time gives the same events as all at once, and unicode line ends inside JSON stay inside."""
    at_once = list(Frames().feed(STREAM))
    frames = Frames()
    assert [frame for i in range(len(STREAM)) for frame in frames.feed(STREAM[i : i + 1])] == at_once
    assert at_once == [Frame("fact", '{"text": "a\u2028b\u0085c"}'), Frame("message", "one\ntwo")]


def test_comments_and_cut_off_events_give_nothing() -> None:
    assert list(Frames().feed(b": ping\n\nevent: fact\n\nevent: fact\ndata: {")) == []


@pytest.mark.parametrize(("chunks", "lines"), [
    ([b"a\nb"], ["a", "b"]),
    ([b"a\r", b"\nb\n"], ["a", "b"]),
    ([b"50 %\r99 %\rdone\n"], ["50 %", "99 %", "done"]),
    ([b"caf\xc3", b"\xa9\n\xff\n"], ["café", "\ufffd"]),
    ([b"a\n\nb\n"], ["a", "", "b"]),
])  # fmt: skip
def test_lines_survive_any_chunking(chunks: list[bytes], lines: list[str]) -> None:
    reader = Lines()
    assert [line for chunk in chunks for line in reader.feed(chunk)] + list(reader.end()) == lines
