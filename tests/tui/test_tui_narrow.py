"""Small terminals keep units, what comes next, and the values that a cursor reads."""

from __future__ import annotations

from typing import Any

import pytest

from sparkdash.domain.event import Measuring
from sparkdash.domain.history import PastRequests, Series
from sparkdash.domain.memory import Floors, Guard, GuardLevel
from sparkdash.domain.request import RequestState
from sparkdash.tui.screens.dialog import DialogText
from sparkdash.tui.text import plain_text
from sparkdash.tui.widgets.chart import ChartPanel
from sparkdash.tui.widgets.memory import guard_next
from sparkdash.units import GIB

CORNER, SMALL, USUAL = (60, 15), (80, 24), (120, 40)


async def test_the_title_counts_a_load_that_stands_still_beside_an_engine_that_serves(stage: Any, box: Any) -> None:
    """Where its name has no room; where it has room it is named."""
    still = box.swap(evict=(), still_since=box.now - 130)
    serves = box.snapshot(swap=still, engines={box.gpt: box.engine()})
    async with stage(serves, size=CORNER) as on:
        assert "◌ 1 stalled" in on.lines[0]
        await on.pilot.resize_terminal(*USUAL)
        await on.settle()
        assert f"◌ stalled {box.coder} 33 %" in on.lines[0]
        assert any("◌ stalled" in line and line.rstrip().endswith("x cancel  K keep") for line in on.lines[1:])


async def test_a_failed_request_says_why_in_whole_words(stage: Any, box: Any) -> None:
    failed = box.request("r7", RequestState.FAILED, status=502, error="engine_unreachable", finished_at=box.now - 1)
    async with stage(box.snapshot(recent=(failed,)), size=SMALL) as on:
        await on.press("3")
        assert any(line.rstrip().endswith("✗ unreachable") for line in on.lines)


async def test_a_run_of_the_bench_is_told_on_every_page(stage: Any, box: Any) -> None:
    now = Measuring(run="r", doing="measuring", arm="a", launch=1, launches=4, done=1, cells=9, share=0.42, at=box.now)
    async with stage(box.snapshot(measuring=now), size=CORNER) as on:
        assert "measuring 42 %" in on.lines[0]
        await on.press("5")
        assert "measuring 42 %" in on.lines[0]


async def test_the_cursor_reads_values_in_a_corner_of_a_screen(stage: Any, box: Any) -> None:
    """Values of both periods have their unit; the title and the day give way."""
    async with stage(box.snapshot(), size=CORNER) as on:
        await on.press("6", "o", "p", "left")
        await on.until(lambda: "before" in on.text)
        assert " 50 tok/s  before 50 tok/s  +0 % " in on.text


@pytest.mark.parametrize(
    ("width", "told"),
    [
        (110, "decode, each · week  last  40 tok/s (1 to 60 tok/s)  the week before 20 tok/s (1 to 60 tok/s)  +100 %"),
        (75, "decode, each · week  last  40 tok/s  the week before 20 tok/s  +100 %"),
        (64, "decode, each · week  40 tok/s  the week before 20 tok/s  +100 %"),
        (50, "last  40 tok/s  the week before 20 tok/s  +100 %"),
        (45, "40 tok/s  the week before 20 tok/s  +100 %"),
    ],
)
def test_the_edge_of_a_chart_loses_spans_before_the_moment_and_its_title_last(width: int, told: str) -> None:
    chart = ChartPanel()
    chart.title, chart.second_name = "decode, each · week", "the week before"
    chart.first, chart.second = (
        Series(figure="decode_tok_s", unit="tok/s", profile="a", node="local", since=0.0, until=1.0, step_s=1.0,
               start=(0.0,), min=(1.0,), mean=(mean,), max=(60.0,), count=(9,))
        for mean in (40.0, 20.0)
    )  # fmt: skip
    assert plain_text(chart._head(width)) == told


async def test_why_a_past_request_failed_is_seen_in_a_corner_of_a_screen(stage: Any, box: Any) -> None:
    bad = box.request("p", RequestState.FAILED, status=503, error="engine_crash", finished_at=box.now - 1)
    async with stage(box.snapshot(), size=CORNER) as on:
        on.daemon.past_requests = {None: PastRequests(requests=(bad,))}
        await on.press("3", "p")
        await on.until(lambda: "✗ engine_crash" in on.text)
        await on.pilot.resize_terminal(*SMALL)
        await on.settle()
        assert on.lines[1].split() == ["client", "profile", "time", "took", "wait", "ttft", "state"]


async def test_nothing_is_said_of_requests_before_the_daemon_answered(stage: Any, box: Any) -> None:
    """Then its URL is told on every page that lists requests: only the dashboard has a card with it."""
    async with stage(None, size=CORNER) as on:
        assert "No request" not in on.text
        await on.tell(box.snapshot(requests={}, recent=()))
        told = "No request yet. Clients use http://127.0.0.1:8484/v1"
        assert told in on.text
        await on.press("3")
        assert told in on.text


def test_the_guard_that_holds_loads_back_says_when_it_does_more() -> None:
    guard = Guard(mode="act", level=GuardLevel.HOLD, floors=Floors(warn=12 * GIB, hold=8 * GIB, kill=4 * GIB))
    assert plain_text(guard_next(guard)) == "below 4.0 GiB it ends an engine"
    assert not guard_next(guard.replace(mode="warn"))
    assert not guard_next(guard.replace(level=GuardLevel.WARN))


async def test_the_field_for_a_new_value_lies_within_its_frame(stage: Any, box: Any) -> None:
    from states_pages import with_settings

    async with stage(box.snapshot(), size=SMALL) as on:
        with_settings(box, on.daemon)
        await on.press("comma")
        await on.until(lambda: "reserve_gib" in on.text)
        await on.press("enter")
        field, words = on.app.screen.query_one("Input").region, on.app.screen.query_one(DialogText).region
        assert words.contains_region(field)
        assert field.x == words.x + 11
        assert "value    12 " in on.lines[field.y]


async def test_the_replay_of_a_request_opens_in_the_middle_over_its_page(stage: Any, box: Any) -> None:
    async with stage(box.snapshot(), size=USUAL) as on:
        one = box.request("p", RequestState.DONE, status=200, finished_at=box.now - 1)
        on.daemon.past_requests = {None: PastRequests(requests=(one,))}
        await on.press("3", "p")
        await on.until(lambda: "✓" in on.text or "done" in on.text)
        await on.press("R")
        await on.until(lambda: "available then" in on.text)
        words = on.app.screen.query_one(DialogText).region
        assert words.y > 1
        assert words.x > 1
        assert "sparkdash" in on.lines[0]
