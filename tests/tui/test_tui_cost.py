"""Work that a paint and a switch of pages leave out."""

import cProfile
from typing import Any
from unittest.mock import Mock

import pytest
from rich.cells import cell_len
from textual.events import ScreenResume

from sparkdash.tui import theme
from sparkdash.tui.screens.page import Page
from sparkdash.tui.text import EMPTY, Line, Span, Style, styled
from sparkdash.tui.widgets import requests
from sparkdash.tui.widgets.panel import changed_cells, line_segments


@pytest.mark.parametrize("page", ["1", "3"])
async def test_of_many_requests_only_those_on_the_screen_are_formatted(
    page: str, stage: Any, box: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = {f"r{place}": box.request(f"r{place}") for place in range(200)}
    formatted: list[str] = []
    real = requests._line

    def note(request: Any, *rest: Any, **more: Any) -> Line:
        formatted.append(request.id)
        return real(request, *rest, **more)

    async with stage(box.snapshot(requests=many), size=(120, 40)) as on:
        await on.press(page)
        monkeypatch.setattr(requests, "_line", note)
        await on.later(1)
        assert 0 < len(set(formatted)) < 40


async def test_a_filter_finds_rows_that_were_never_on_the_screen(stage: Any, box: Any) -> None:
    many = {f"r{place}": box.request(f"r{place}") for place in range(200)}
    many["r199"] = box.request("r199", client="the-last-one")
    async with stage(box.snapshot(requests=many), size=(120, 40)) as on:
        await on.press("3")
        assert "the-last-one" not in on.text
        await on.press("slash", *"last-one")
        assert "the-last-one" in on.text


CALLS = 1960
"""Calls of our own functions in a paint. Write a lower figure when it is reached; a higher one needs a good reason."""


async def test_a_paint_of_six_idle_engines_costs_no_more_calls_than_before(stage: Any, box: Any) -> None:
    engines = {name: box.engine(name) for name in ("north", "east", "south", "west", "up", "down")}
    async with stage(box.snapshot(engines=engines), size=(120, 40)) as on:
        await on.later(1)
        with cProfile.Profile() as profile:
            on.app._paint()
        # by code object: pstats counts only one of two generators on a line, and which one changes from run to run
        calls = {f"{one.code}": one.callcount for one in profile.getstats() if "/sparkdash/" in f"{one.code}"}
        assert sum(calls.values()) <= CALLS, sorted(calls.items(), key=lambda one: -one[1])[:20]


LINES = (
    EMPTY, styled("12.3", Style.STRONG) + styled(" tok/s", Style.DIM), styled("12.4", Style.STRONG) + styled(" tok/s"),
    styled("2.4 tok/s"), styled("終端 12.4"), styled("端端 12.4"), styled("  12.3 tok/s", Style.DIM), styled("aaab"),
    styled("aabb"),
)  # fmt: skip


@pytest.mark.parametrize("before", LINES)
@pytest.mark.parametrize("line", LINES)
def test_only_the_cells_that_changed_are_drawn_anew(before: Line, line: Line) -> None:
    """Cells outside the region are the same in both rows, and the region has no more than it needs."""

    def cells(row: Line) -> list[tuple[str, Style]]:
        found = [(part, span.style) for span in row for char in span.text for part in (char, "")[: cell_len(char)]]
        return found + [(" ", Style.PLAIN)] * (16 - len(found))

    found = changed_cells(before, line, 3, 16)
    differ = [at for at, pair in enumerate(zip(cells(before), cells(line), strict=True)) if pair[0] != pair[1]]
    if found is None:
        assert not differ
        return
    assert found.y == 3
    assert all(found.x <= at < found.right for at in differ)
    assert not differ or found.x >= differ[0] - 1


def test_blanks_go_with_the_text_before_them() -> None:
    line = styled(" codex") + styled("   ", Style.FAINT) + styled("12.5") + styled(" ") + styled("● ready", Style.GOOD)
    found = line_segments(line, theme.styles_for(theme.DARK))
    assert [segment.text for segment in found] == [" codex   12.5 ", "● ready"]
    assert line_segments(EMPTY, theme.styles_for(theme.DARK)) == []


@pytest.mark.parametrize("name", [theme.DARK, theme.PLAIN])
def test_blanks_on_another_ground_are_segments_of_their_own(name: str) -> None:
    """An underline would go on under them, and the cursor's row would end too early."""
    lit = Span("  ", Style.PLAIN, lit=True)
    line = (*styled("failed", Style.BAD), *styled("  "), lit, *styled("x"))
    texts = [segment.text for segment in line_segments(line, theme.styles_for(name))]
    assert texts == (["failed  ", "  ", "x"] if name == theme.DARK else ["failed", "  ", "  ", "x"])


async def test_a_switch_of_pages_styles_no_widget_anew(large: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    await large.press("3", "1")
    styled: list[object] = []
    sheet = large.app.stylesheet
    real = sheet.apply
    monkeypatch.setattr(sheet, "apply", lambda node, **rest: styled.append(node) or real(node, **rest))
    await large.press("3")
    assert styled == []
    assert "codex" in large.text


async def test_opening_a_page_for_the_first_time_parses_its_own_styles_alone(
    large: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[object] = []
    sheet = large.app.stylesheet
    real = sheet.reparse
    monkeypatch.setattr(sheet, "reparse", lambda: parsed.append(sheet) or real())
    await large.press("3")
    assert parsed == []
    assert "codex" in large.text


async def test_a_page_that_was_hidden_gets_the_new_theme(large: Any) -> None:
    await large.press("3", "1")
    large.app.action_look("light")
    await large.press("3")
    grounds = {widget.styles.background.hex.lower() for widget in large.app.screen.query("Panel")}
    assert grounds == {"#fbfbf8"}


@pytest.mark.parametrize("page", ["2", "4", "6", "7"])
async def test_a_page_that_reads_when_it_opens_is_drawn_once(
    page: str, large: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await large.press(page)
    shown: list[object] = []
    real = Page.show
    monkeypatch.setattr(Page, "show", lambda page, view: shown.append(page) or real(page, view))
    monkeypatch.setattr(large.app, "want_paint", lambda: None)  # what is read for the page paints later
    large.app.screen.post_message(ScreenResume())
    await large.settle()
    assert shown == [large.app.screen]


def pages_drawn(on: Any, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    drawn: list[str] = []

    def note() -> None:
        if not on.app._batch_count:  # while paints are held, nothing reaches the terminal
            drawn.append(on.app.screen.title_key)

    monkeypatch.setattr(on.app, "post_display_hook", note)
    return drawn


@pytest.mark.parametrize("opened_before", [False, True])
async def test_a_page_is_drawn_with_its_key_and_waits_for_no_timer(
    opened_before: bool, on: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Textual holds every paint for 50 ms when pages are switched."""
    if opened_before:
        await on.press("3", "1")
    drawn = pages_drawn(on, monkeypatch)
    monkeypatch.setattr(on.app, "set_timer", Mock())  # none of them is ever due
    await on.press("3")
    await on.until(lambda: "requests" in drawn)
    assert "codex" in on.text


async def test_paints_go_on_when_the_coming_screen_ends_before_it_takes_over(
    on: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = pages_drawn(on, monkeypatch)
    with monkeypatch.context() as lost:
        lost.setattr(on.app, "call_later", Mock())
        on.app.delay_update(0.01)
    await on.until(lambda: "dashboard" in drawn)
    assert drawn
