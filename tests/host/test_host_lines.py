"""Lines out of bytes."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from sparkdash.host.command import LineSplitter


def split(*chunks: bytes, limit: int = 100) -> list[str]:
    splitter = LineSplitter(limit)
    return [line for chunk in chunks for line in splitter.feed(chunk)] + splitter.rest()


def test_progress_bars_become_lines() -> None:
    """A carriage return ends a line, and the empty piece before it is no line."""
    assert split(b"\rLoading 1%\rLoading 2%\rdone\nnext\n") == ["Loading 1%", "Loading 2%", "done", "next"]


def test_windows_line_ends_and_blank_lines() -> None:
    """CR LF is one end of line, cut anywhere; a blank line between two newlines stays."""
    assert split(b"a\r", b"\nb\r\n\nc\n\nd") == ["a", "b", "", "c", "", "d"]


def test_a_progress_line_is_given_at_once() -> None:
    """A line that ends in a carriage return does not wait for what follows."""
    assert LineSplitter().feed(b"50%\r") == ["50%"]


def test_bytes_that_are_not_text_survive() -> None:
    """Bytes that are not UTF-8 are replaced; a character cut by a chunk border is whole."""
    assert split(b"\xff\xfe bad\n", "é".encode()[:1], "é".encode()[1:] + b"\n") == ["\ufffd\ufffd bad", "é"]


def test_endless_lines_are_cut() -> None:
    """A line keeps `limit` bytes and says that it was cut; the next line is whole again."""
    assert split(b"x" * 70, b"x" * 70, b"tail\nok\n") == ["x" * 100 + "…", "ok"]


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=5))
def test_chunk_borders_do_not_matter(data: bytes, cuts: list[int]) -> None:
    """However the stream is cut into chunks, the lines are the same."""
    borders = [0, *sorted(cut for cut in cuts if cut <= len(data)), len(data)]
    chunks = [data[a:b] for a, b in pairwise(borders)]
    assert split(*chunks) == split(data)
