"""Lines, frames, sparklines and the memory bar: pure text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from sparkdash.domain.container import ForeignContainer
from sparkdash.domain.metric import Memory
from sparkdash.domain.swap import SwapCause
from sparkdash.tui import text
from sparkdash.tui.lines import words
from sparkdash.tui.lines.charts import meter, sparkline
from sparkdash.tui.lines.hero import FIGURE, Speed, figure_block
from sparkdash.tui.text import EdgeText, Style, plain_text, shorten_apart, styled
from sparkdash.tui.widgets.memory import memory_bar, memory_legend, memory_parts
from sparkdash.units import GIB, fitted


@pytest.mark.parametrize(("raw", "shown"), [
    ("plain", "plain"), ("\x1b[31mred\x1b[0m", "red"), ("\x1b]0;title\x07text", "text"), ("a\tb", "a   b"),
    ("bell\x07 null\x00", "bell null"), ("c1\x9bcsi", "c1csi"),
])  # fmt: skip
def test_foreign_text_cannot_steer_the_terminal(raw: str, shown: str) -> None:
    assert text.strip_controls(raw) == shown


@given(st.text(), st.integers(0, 40), st.text(max_size=20))
def test_whatever_is_laid_out_keeps_its_width(left: str, width: int, far: str) -> None:
    line = styled(left)
    assert text.length(text.pad(line, width)) == width
    assert text.length(text.align_right(line, width)) == width
    assert text.length(text.clip(line, width)) <= width
    assert text.length(text.justify(line, styled(far), width)) == width


@given(st.text(max_size=60), st.text(max_size=60), st.integers(8, 60))
def test_every_row_of_a_frame_is_as_wide_as_the_frame(title: str, note: str, width: int) -> None:
    rows = text.frame([styled(title)], width, EdgeText(styled(title), styled(note)), EdgeText(styled(note)))
    assert {text.length(row) for row in rows} == {width}
    assert (text.plain_text(rows[0])[0], text.plain_text(rows[-1])[-1]) == ("╭", "╯")


def test_wrapping_keeps_every_word_until_the_limit() -> None:
    assert [text.plain_text(row) for row in text.wrap("one two three four", 9)] == ["one two", "three", "four"]
    assert [text.plain_text(row) for row in text.wrap("one two three four", 9, limit=2)] == ["one two", "three fo…"]
    assert [text.plain_text(row) for row in text.wrap("see /srv/models/x.yaml now", 9)] == [
        "see",
        "/srv/mode",
        "ls/x.yaml",
        "now",
    ]


def test_a_wrapped_row_has_no_space_at_its_end_that_would_have_its_last_figure_cut() -> None:
    """The plan of a run said "2 cells each, … to measure" at 60 columns."""
    rows = text.wrap_line(styled("2 cells each, 8 to measure"), 15)
    assert [text.plain_text(text.clip(row, 15)) for row in rows] == ["2 cells each, 8", "to measure"]


def test_unknown_is_blank_and_zero_is_the_lowest_bar() -> None:
    assert sparkline([None, 0.0, 5.0, 10.0], 10.0) == [" ▁▄█"]
    assert sparkline([0.0, 10.0, 20.0], 20.0, rows=2) == ["  █", "▁██"]
    assert sparkline([0.0, None], 0.0) == ["▁ "]


@given(st.floats(-1, 2), st.integers(1, 60))
def test_a_meter_is_always_as_wide_as_it_should_be(share: float, width: int) -> None:
    done, rest = meter(share, width)
    assert len(done) + len(rest) == width


def memory(**changes: object) -> Memory:
    values: dict[str, object] = {
        "total": int(121.7 * GIB), "free": int(16.4 * GIB), "page_cache": 21 * GIB, "available": int(37.4 * GIB),
        "engines": {"gpt-oss-120b": int(78.2 * GIB)}, "reserve": 10 * GIB,
    }  # fmt: skip
    return Memory.model_validate(values | changes)


def test_the_stretches_of_the_memory_bar_add_up_to_the_box() -> None:
    assert sum(part.bytes or 0 for part in memory_parts(memory())) == memory().total
    assert text.length(memory_bar(memory(), 76)) == 76


def test_what_stands_beyond_the_reserve_is_red() -> None:
    """Memory in use that admission would have kept free calls for action."""
    full = memory(engines={"big": 118 * GIB}, free=1 * GIB, page_cache=1 * GIB, available=2 * GIB)
    assert memory_bar(full, 76)[-2].style is Style.BAD
    assert all(span.style is not Style.BAD for span in memory_bar(memory(), 76))


def test_an_engine_of_unknown_size_is_not_guessed() -> None:
    told = text.plain_text(memory_legend(memory(engines={"gpt-oss-120b": None}), 100))
    assert "gpt-oss-120b -" in told
    assert "engines + other 84.3" in told


def test_a_container_that_is_not_ours_has_a_stretch_of_its_own() -> None:
    theirs = memory(engines={"gpt-oss-120b": 40 * GIB}, strangers=(ForeignContainer(name="comfy", bytes=20 * GIB),))
    assert "gpt-oss-120b 40.0" in text.plain_text(memory_legend(theirs, 100))
    assert "theirs: comfy 20.0" in text.plain_text(memory_legend(theirs, 100))
    assert sum(part.bytes or 0 for part in memory_parts(theirs)) == theirs.total


@pytest.mark.parametrize("width", [76, 88, 100])
def test_engines_with_names_that_begin_alike_are_told_apart(width: int) -> None:
    """Two of one family side by side are what two engines at once usually are; the reserve is seen as well."""
    told = text.plain_text(
        memory_legend(memory(engines={"qwen3-coder-30b-nvfp4": 33 * GIB, "qwen3.5-27b": 31 * GIB}), width)
    )
    first, second = told.split("█ ")[1].split(" ")[0], told.split("▚ ")[1].split(" ")[0]
    assert first != second
    assert told.endswith(("reserve 10.0", "kept 10.0"))


@pytest.mark.parametrize("cause", SwapCause)
def test_every_cause_of_a_swap_has_words(cause: SwapCause) -> None:
    assert words.CAUSES[cause]


FAMILY = frozenset({"qwen3-30b-nvfp4/eagle3-long", "qwen3-30b-nvfp4/eagle3-short", "qwen3-30b-nvfp4/plain-long"})
NAN, INF = float("nan"), float("inf")


def test_names_that_begin_and_end_alike_are_cut_apart() -> None:
    """Where the middle would make two of them the same, the cut moves; else the part that differs is shown, if it can be."""
    assert shorten_apart("gpt-oss-120b", 20, FAMILY) == "gpt-oss-120b"
    assert len({shorten_apart(name, 14, FAMILY) for name in FAMILY}) == 3
    teams = frozenset(f"agents-of-team-{i}-in-the-lab" for i in range(9))
    assert shorten_apart("agents-of-team-4-in-the-lab", 14, teams) == "a…4-in-the-lab"
    teams = frozenset(f"agents-of-team-{i}-in-the-laboratory" for i in range(9))
    assert shorten_apart("agents-of-team-4-in-the-laboratory", 14, teams) == "ag…of-team-4-…"
    assert shorten_apart("agents-4", 3, frozenset({"agents-5"})) == "a…4"
    assert shorten_apart("aaaa4aaaa", 3, frozenset({"aaaa5aaaa"})) == "a…a"


@given(st.text("ab端-1", max_size=20), st.integers(0, 24), st.sets(st.text("ab端-1", max_size=20), max_size=6))
def test_a_cut_name_is_never_wider_than_its_place(name: str, width: int, others: set[str]) -> None:
    assert cell_len(shorten_apart(name, width, frozenset(others))) <= width


@pytest.mark.parametrize(
    ("value", "cells", "digits", "text"),
    [
        (None, 6, 1, "-"), (57.94, 6, 1, "57.9"), (12345.6, 6, 1, "12346"), (999_999, 6, 0, "999999"),
        (12_345_678, 6, 0, "12.3M"), (1234.5, 4, 1, "1234"), (12_345, 4, 0, "12k"), (123_456, 4, 0, "123k"),
        (9_999_999_999, 5, 0, "10.0G"), (-12_345.0, 5, 0, "-12k"),
    ],
)  # fmt: skip
def test_a_figure_that_is_too_long_is_written_shorter(value: float | None, cells: int, digits: int, text: str) -> None:
    assert fitted(value, cells, digits) == text


@pytest.mark.parametrize(
    ("each", "told"), [(57.9, "each 57.9 n=1"), (132.9, "each 133 n=1"), (1506.2, "each 1506 n=1")]
)
def test_the_rate_of_each_request_never_touches_the_chart(each: float, told: str) -> None:
    speed = Speed(total=each, each=each, decoding=1, computing=0, median=None, published=None)
    assert plain_text(figure_block(speed, 5)[4]) == f"{told:<{FIGURE}}"
    assert len(told) < FIGURE
