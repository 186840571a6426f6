"""The recorded past on the screen: charts, usage, past requests and their time lines."""

from __future__ import annotations

import time
from typing import Any

import pytest
from textual import events

from sparkdash.domain.event import Level
from sparkdash.domain.history import (
    MarkKind,
    PastRequests,
    Quantiles,
    Series,
    TimelineMark,
    UsageReport,
    UsageTotals,
    match_answers,
)
from sparkdash.domain.metric import Metric
from sparkdash.domain.request import Request, RequestState
from sparkdash.domain.state import Figures
from sparkdash.errors import AdmissionError
from sparkdash.tui.choices import HeroChoice, farthest
from sparkdash.tui.history import BucketRing
from sparkdash.tui.lines.chart_window import DAY_S, HOUR_S, ChartWindow, moment_text, ticks
from sparkdash.tui.lines.charts import Range, nice_top, range_chart
from sparkdash.tui.screens import requests
from sparkdash.tui.screens.replay import parts_of
from sparkdash.tui.screens.requests import PastTable, parse_filter
from sparkdash.tui.text import Style, plain_text
from sparkdash.tui.widgets.chart import ChartPanel, columns

WIDE = (120, 40)


def past(box: Any, ident: str, **changes: Any) -> Request:
    values: dict[str, Any] = {
        "state": RequestState.DONE, "started_at": box.now - 100, "granted_at": box.now - 40, "finished_at": box.now - 30,
        "ttft_s": 4.0, "status": 200, "finish_reason": "stop", "prompt_tokens": 1000, "cached_tokens": 900,
        "completion_tokens": 320, "decode_tok_s": 53.3,
    }  # fmt: skip
    return box.request(ident, **(values | changes))


def swap_mark(box: Any) -> TimelineMark:
    """A load of gpt-oss that ended when the request was granted."""
    return TimelineMark(
        kind=MarkKind.SWAP, at=box.now - 80, until=box.now - 40, profile=box.gpt, level=Level.INFO, code="done",
        text="gpt-oss-120b loaded in 40s",
    )  # fmt: skip


async def test_a_chart_shows_the_recorded_figure_with_its_marks_and_the_usage_below(stage: Any, box: Any) -> None:
    """The box comes first; o charts a profile, p lays the period before over it."""
    async with stage(box.snapshot(), size=WIDE) as on:
        on.daemon.marks = (swap_mark(box),)
        totals = UsageTotals(
            group=box.gpt, requests=8411, prompt_tokens=96_100_000, cached_tokens=89_373_000, output_tokens=2_900_000,
            ttft_s=Quantiles(count=9, p50=0.41, p95=1.9), errors=3,
        )  # fmt: skip
        on.daemon.usage = UsageReport(since=0.0, until=box.now, by="profile", rows=(totals,), total=totals)
        await on.press("6")
        await on.until(lambda: "box · decode" in on.text)
        assert "last  50 tok/s" in on.lines[1]
        assert any("▲" in line for line in on.lines[2:-3])
        assert any("gpt-oss-120b 8411 96.1 M 93 %" in row and "0.41 / 1.90 s" in row for row in on.rows), on.text
        await on.press("o", "p")
        await on.until(lambda: "before 50" in on.text)
        assert "gpt-oss-120b · decode" in on.lines[1]
        series = [order for order in on.daemon.asked if order[0] == "series"][-2:]
        assert series[0][3] == series[1][4], "the second period ends where the first begins"


async def test_zoom_pan_and_cursor_by_keys_and_mouse(stage: Any, box: Any) -> None:
    async with stage(box.snapshot(), size=WIDE) as on:
        on.daemon.recorded = lambda _profile, at: 90.0 if at < box.now - 1800 else 30.0
        await on.press("6")
        chart = on.app.screen.query_one(ChartPanel)
        await on.press("left")
        await on.until(lambda: "13:4" in on.lines[1] and " 30" in on.lines[1])
        await on.pilot.click(ChartPanel, offset=(10, 5))
        await on.settle()
        assert " 90" in on.lines[1]
        await on.press("0", "right_square_bracket")
        assert chart.window == ChartWindow(6 * HOUR_S)
        await on.press("h")
        assert chart.window.end == pytest.approx(box.now - 1.5 * HOUR_S)
        await on.press("0", "plus")
        assert chart.window == ChartWindow(3 * HOUR_S)
        where = {"x": 2, "y": 4, "delta_x": 0, "delta_y": 0, "button": 0, "shift": False, "meta": False, "ctrl": False}
        chart.post_message(events.MouseScrollUp(chart, **where))
        await on.until(lambda: chart.window.length_s == 1.5 * HOUR_S)
        assert chart.window.period(box.now)[0] == pytest.approx(box.now - 3 * HOUR_S, abs=60)
        await on.pilot.click(ChartPanel, offset=(60, 5))
        assert chart.cursor is not None
        begin, end = chart.window.period(box.now)
        assert begin < chart.cursor < end


async def test_a_daemon_without_a_history_says_so(stage: Any, box: Any) -> None:
    async with stage(box.snapshot(), size=WIDE) as on:
        on.daemon.refuses = AdmissionError("Nothing is recorded here.", code="no_history")
        await on.press("6")
        await on.until(lambda: "Nothing is recorded here." in on.text)


async def test_past_requests_are_filtered_sorted_and_opened_as_a_time_line(stage: Any, box: Any) -> None:
    """The daemon is asked for what it can look for; the rest is looked for here, page by page."""
    async with stage(box.snapshot(), size=WIDE) as on:
        on.daemon.marks = (swap_mark(box),)
        failed = past(
            box,
            "p2",
            client="curl",
            state=RequestState.FAILED,
            status=503,
            error="engine_crash",
            finish_reason=None,
            completion_tokens=None,
            completion_estimate=57,
        )
        on.daemon.past_requests = {
            None: PastRequests(requests=(past(box, "p1"), failed), next="x"),
            "x": PastRequests(requests=(past(box, "p3"),)),
        }
        await on.press("3", "p")
        await on.until(lambda: "engine_crash" in on.text)
        assert "~57" in on.text
        assert any(row.startswith("codex gpt-oss-120b") and " 1000 90 % " in row for row in on.rows), on.text
        table = on.app.screen.query_one(PastTable)
        await on.press("G")
        assert table.cursor != "p1"
        await on.press("o")
        await on.until(lambda: table.cursor == "p1")  # the slowest is under the cursor
        await on.press("slash", *"status:5xx ttft>2s", "enter")
        await on.until(lambda: ("past", "duration", None, 2.0, "x") in on.daemon.asked)
        await on.settle()
        (row,) = [row for row in on.rows if row.startswith("curl gpt-oss-120b 13:")]
        assert "✗ engine_crash" in row
        await on.press("enter")
        await on.until(lambda: "meanwhile" in on.text)
        for told in (
            "waits     20s  for its place in the queue",
            "swap      40s",
            "prefill   4.00s  100 computed of 1000",
        ):
            assert told in on.text, on.text


async def test_the_end_of_the_past_reads_on(stage: Any, box: Any) -> None:
    async with stage(box.snapshot(), size=WIDE) as on:
        on.daemon.past_requests = {
            None: PastRequests(requests=tuple(past(box, f"p{n}") for n in range(250)), next="x"),
            "x": PastRequests(requests=tuple(past(box, f"q{n}") for n in range(40))),
        }
        await on.press("3", "p")
        await on.until(lambda: "/200+" in on.text)
        await on.press("G")
        await on.until(lambda: "/290" in on.text)
        await on.press("G")
        assert "-290/290" in on.text


async def test_a_filter_that_nothing_fits_yet_says_how_far_it_looked(
    stage: Any, box: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "MOST_PAGES", 1)
    async with stage(box.snapshot(), size=WIDE) as on:
        on.daemon.past_requests = {
            None: PastRequests(requests=tuple(past(box, f"p{n}", client="aider") for n in range(1500)), next="x"),
            "x": PastRequests(requests=(past(box, "q", client="codex"),)),
        }
        await on.press("3", "p")
        await on.until(lambda: "aider" in on.text)
        await on.press("slash", *"client", "colon", *"codex", "enter")
        await on.until(lambda: "None of the first 1,500 requests fits; r reads on." in on.text)
        await on.press("r")
        await on.until(lambda: "reads on" not in on.text and any("codex" in row and "gpt" in row for row in on.rows))


async def test_a_past_request_is_replayed_on_another_profile(stage: Any, box: Any) -> None:
    async with stage(box.snapshot(), size=WIDE) as on:
        on.daemon.past_requests = {None: PastRequests(requests=(past(box, "p1"),))}
        on.daemon.replayed = past(box, "r1", profile="qwen", finish_reason="length")
        on.daemon.match = match_answers("abc", "abX")
        await on.press("3", "p")
        await on.until(lambda: "codex" in on.text)
        await on.press("enter")
        await on.until(lambda: "replay on another profile" in on.text)
        await on.press("R")
        await on.until(lambda: "available then" in on.text)
        first = on.daemon.asked[-1]
        assert first[:2] == ("plan a replay", "p1")
        await on.press("G")
        await on.until(lambda: on.daemon.asked[-1] != first)
        assert on.daemon.asked[-1][2] == box.gpt  # its own is the last
        await on.press("pageup", "j")
        await on.until(lambda: on.daemon.asked[-1][2] not in (first[2], box.gpt))
        chosen = on.daemon.asked[-1][2]
        assert chosen != first[2]
        await on.until(
            lambda: f"sparkdash requests --replay p1 --on {chosen}" in on.text and "available then" in on.text
        )
        await on.press("enter")
        await on.until(lambda: "differ from character 3" in on.text)
        assert on.daemon.asked[-1] == ("replay", "p1", chosen)
        assert "⏎ close" in on.text
        assert any("finish reason" in row and "length" in row for row in on.rows), on.text


async def test_a_request_that_was_not_captured_is_not_replayed(stage: Any, box: Any) -> None:
    async with stage(box.snapshot(), size=WIDE) as on:
        on.daemon.past_requests = {None: PastRequests(requests=(past(box, "p1"),))}
        await on.press("3", "p")
        await on.until(lambda: "codex" in on.text)
        on.daemon.refuses = AdmissionError("It was not captured.", code="not_captured", hint="Set `capture = true`.")
        await on.press("R")
        await on.until(lambda: "Set `capture = true`." in on.text)
        await on.press("enter")
        assert on.daemon.asked[-1][0] == "plan a replay"


def test_the_parts_of_a_request_add_up_to_its_time(box: Any) -> None:
    one = past(box, "p1")
    parts = parts_of(one, (swap_mark(box),))
    assert [(part.name, part.seconds) for part in parts] == [("waits", 20), ("swap", 40), ("prefill", 4), ("decode", 6)]
    gone = past(box, "p2", granted_at=None, ttft_s=None)
    assert [(part.name, part.seconds) for part in parts_of(gone, ())] == [("waits", 70)]


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("", True), ("client:cod", True), ("client:aider", False), ("status:2xx ttft>3s", True), ("ttft>4s", False),
        ("wait>59s out>0.3k", True), ("took>2m", False), ("status:done stop", True), ("status:5xx", False), ("gpt-oss chat", True),
    ],
)  # fmt: skip
def test_a_filter_takes_conditions_and_words(box: Any, text: str, fits: bool) -> None:
    assert parse_filter(text).fits(past(box, "p1")) is fits


def test_a_spike_of_one_bucket_is_drawn_at_any_width() -> None:
    count = 1000
    values = tuple(None if place >= 500 else 100.0 if place == 250 else 1.0 for place in range(count))
    series = Series(
        figure="f", unit="", profile="", node="local", since=0.0, until=1000.0, step_s=1.0,
        start=tuple(map(float, range(count))), min=values, mean=values, max=values, count=(1,) * count,
    )  # fmt: skip
    found = columns(series, 0.0, 1000.0, 40)
    assert found[10] == Range(1.0, 100.0, pytest.approx((24 * 1.0 + 100.0) / 25), 25)
    assert found[21:] == [None] * 19
    lines = range_chart(found, [], 4, nice_top(100.0), cursor=15, axis=lambda value: f"{value:g}", last=None)
    assert [plain_text(line).strip().split()[-1] for line in lines][::3] == ["100", "0"]
    assert plain_text(lines[0])[5] != " "
    assert plain_text(lines[0])[6:15].strip() == ""
    assert plain_text(lines[0])[15] == "┊"


def test_the_mean_is_a_line_over_the_band_of_all_values() -> None:
    """Bright where the mean is, faint where any value was; the last mean stands at the axis."""
    each = [Range(0.0, 100.0, 50.0, 4)] * 4
    lines = range_chart(each, [], 6, 100.0, cursor=None, axis=lambda value: f"{value:g}", last=50.0)
    styles = [{span.style for span in line if any(cell > "\u2800" for cell in span.text)} for line in lines]
    assert styles == [{Style.FAINT}, {Style.FAINT}, {Style.FAINT}, {Style.GOOD}, {Style.FAINT}, {Style.FAINT}]
    assert [plain_text(line).split()[1:] for line in lines] == [["100"], [], [], ["50"], [], ["0"]]


def test_a_window_keeps_the_moment_under_the_mouse_and_never_ends_in_the_future() -> None:
    now = 1_000_000.0
    day = ChartWindow(DAY_S)
    near = day.zoomed(0.5, 0.25, now)
    assert near.period(now)[0] + 0.25 * near.length_s == pytest.approx(now - 0.75 * DAY_S)
    assert near.panned(9.0, now).end is None
    assert day.stepped(1).name == "1w"
    assert day.stepped(-1).name == "6h"
    assert all(now - DAY_S < at <= now for at, _ in ticks(now - DAY_S, now, 8))
    assert 0 < len(ticks(now - 365 * DAY_S, now, 8)) <= 9


@pytest.mark.parametrize(
    ("at", "step_s", "now", "told"),
    [
        (1_790_000_000.0, 3600, 1_795_000_000.0, "Mon 21 Sep 14:13"),
        (1_790_000_000.0, 3600, 1_800_000_000.0, "Mon 21 Sep 2026 14:13"),
        (1_790_000_000.0, 86400, 1_795_000_000.0, "Mon 21 Sep 2026"),
    ],
)
def test_a_moment_of_another_year_has_its_year(
    monkeypatch: pytest.MonkeyPatch, at: float, step_s: float, now: float, told: str
) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    try:
        assert moment_text(at, step_s, now) == told
    finally:
        monkeypatch.undo()
        time.tzset()


async def test_e_makes_the_rate_of_each_request_large_and_e_again_that_of_all(stage: Any, box: Any) -> None:
    async with stage(box.snapshot(), size=(120, 40)) as on:
        assert "each 28.9 tok/s" in on.text
        await on.press("e")
        assert "total 57.9 tok/s" in on.text
        assert "each, tok/s" in on.text
        await on.press("e")
        assert "each 28.9 tok/s" in on.text


async def test_brackets_choose_the_window_of_the_large_chart(stage: Any, box: Any) -> None:
    async with stage(box.snapshot(), size=(120, 40)) as on:
        await on.press("right_square_bracket")
        assert "-45m" in on.text
        await on.press("right_square_bracket", "right_square_bracket")
        assert "-18h" in on.text
        await on.press("left_square_bracket", "left_square_bracket", "left_square_bracket")
        assert "-2m" in on.text


@pytest.mark.parametrize(("keys", "title"), [(("h",), "decode, total"), (("e", "h"), "decode, each")])
async def test_h_opens_the_history_with_the_large_chart(
    stage: Any, box: Any, keys: tuple[str, ...], title: str
) -> None:
    async with stage(box.snapshot(), size=(120, 40)) as on:
        await on.press(*keys)
        await on.settle()
        assert f"{box.gpt} · {title}" in on.lines[1]


def hour(values: dict[int, float]) -> Series:
    """Decode rates of an hour in buckets of ten seconds; the key is the bucket's number."""
    each = [values.get(place) for place in range(360)]
    return Series(
        figure=Metric.DECODE.value, unit="tok/s", profile="a", node="", since=0.0, until=HOUR_S, step_s=10.0,
        start=tuple(10.0 * place for place in range(360)), min=tuple(each), mean=tuple(each), max=tuple(each),
        count=tuple(0 if one is None else 1 for one in each),
    )  # fmt: skip


def test_a_column_of_a_window_shows_its_highest_value_and_a_gap_stays_a_gap() -> None:
    """A spike of ten seconds is seen in an hour of 60 columns."""
    choice = HeroChoice(window_s=HOUR_S, series=hour({0: 5.0, 1: 90.0, 2: 5.0, 359: 7.0}))
    columns = choice.columns("a", 60, HOUR_S)
    assert (columns[0], columns[1], columns[59]) == (90.0, None, 7.0)
    assert set(choice.columns("b", 60, HOUR_S)) == {None}


def test_a_series_is_read_again_once_a_bucket_is_due_and_for_another_engine() -> None:
    choice = HeroChoice(window_s=HOUR_S, series=hour({}))
    assert [choice.wants("a", HOUR_S + 9), choice.wants("a", HOUR_S + 11), choice.wants("b", 0.0)] == [
        False,
        True,
        True,
    ]
    assert not HeroChoice().wants("a", 0.0)


def test_a_spike_and_a_gap_of_one_second_survive_in_the_live_chart() -> None:
    """A bucket of two seconds is drawn by the value that lies farther from the bucket before."""
    ring = BucketRing()
    for at, value in enumerate([50.0, 50.0, 50.0, 90.0, 50.0, 50.0, 0.0, 50.0]):
        ring.add(float(at), value)
    assert ring.last(4, 7.0) == [50.0, 90.0, 50.0, 0.0]
    assert farthest(None, 1.0, 2.0) == 2.0


async def test_the_value_of_a_line_is_whole_at_rates_above_a_thousand(stage: Any, box: Any) -> None:
    fast = Figures(rates=(1220.0, 1220.0), best=1488.0)
    one = {"r": box.request("r")}
    async with stage(box.snapshot(figures={box.gpt: fast}, requests=one), size=(120, 40)) as on:
        assert "median 1220 " in on.text
