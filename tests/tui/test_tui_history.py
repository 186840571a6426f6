"""The recorded past on the screen: charts, usage, past requests and their time lines."""

from typing import Any

import pytest
from states_pages import past
from textual import events

from sparkdash.domain.event import Level
from sparkdash.domain.history import MarkKind, PastRequests, Series, TimelineMark, match_answers
from sparkdash.domain.metric import Metric
from sparkdash.domain.request import RequestState
from sparkdash.domain.state import Figures
from sparkdash.errors import AdmissionError
from sparkdash.tui.choices import HeroChoice, farthest
from sparkdash.tui.history import BucketRing
from sparkdash.tui.lines.chart_window import DAY_S, HOUR_S, ChartWindow, moment_text, ticks
from sparkdash.tui.lines.charts import Range, nice_top, range_chart
from sparkdash.tui.mirror import View
from sparkdash.tui.screens import requests
from sparkdash.tui.screens.replay import parts_of, request_lines
from sparkdash.tui.screens.requests import PastTable, parse_filter
from sparkdash.tui.text import Style, plain_text
from sparkdash.tui.widgets.chart import ChartPanel, columns

WIDE = (120, 40)


def swap_mark(box: Any) -> TimelineMark:
    """A load of gpt-oss that ended when the request was granted."""
    period = {"at": box.now - 80, "until": box.now - 40}
    return TimelineMark(kind=MarkKind.SWAP, profile=box.gpt, level=Level.INFO, code="done", text="loaded", **period)


async def test_o_charts_a_profile_and_p_lays_the_period_before_over_it(large: Any, box: Any) -> None:
    await large.press("6")
    await large.until(lambda: "box · decode" in large.text)
    await large.press("o", "p")
    await large.until(lambda: "before 50" in large.text)
    assert "gpt-oss-120b · decode" in large.lines[1]
    series = [order for order in large.daemon.asked if order[0] == "series"][-2:]
    assert series[0][3] == series[1][4], "the second period ends where the first begins"


async def test_zoom_pan_and_cursor_by_keys_and_mouse(large: Any, box: Any) -> None:
    large.daemon.recorded = lambda _profile, at: 90.0 if at < box.now - 1800 else 30.0
    await large.press("6")
    chart = large.app.screen.query_one(ChartPanel)
    await large.press("left")
    await large.until(lambda: "13:4" in large.lines[1] and " 30" in large.lines[1])
    await large.pilot.click(ChartPanel, offset=(10, 5))
    await large.settle()
    assert " 90" in large.lines[1]
    await large.press("0", "right_square_bracket")
    assert chart.window == ChartWindow(6 * HOUR_S)
    await large.press("h")
    assert chart.window.end == pytest.approx(box.now - 1.5 * HOUR_S)
    await large.press("0", "plus")
    assert chart.window == ChartWindow(3 * HOUR_S)
    where = {"x": 2, "y": 4, "delta_x": 0, "delta_y": 0, "button": 0, "shift": False, "meta": False, "ctrl": False}
    chart.post_message(events.MouseScrollUp(chart, **where))
    await large.until(lambda: chart.window.length_s == 1.5 * HOUR_S)
    assert chart.window.period(box.now)[0] == pytest.approx(box.now - 3 * HOUR_S, abs=60)
    await large.pilot.click(ChartPanel, offset=(60, 5))
    assert chart.cursor is not None
    begin, end = chart.window.period(box.now)
    assert begin < chart.cursor < end


async def test_past_requests_are_filtered_and_sorted(stage: Any, box: Any) -> None:
    """The daemon is asked for what it can look for; the rest is looked for here, page by page."""
    ended = {"state": RequestState.FAILED, "status": 503, "error": "engine_crash", "finish_reason": None}
    failed = past(box, "p2", client="curl", completion_tokens=None, completion_estimate=57, **ended)
    async with stage(box.snapshot(), size=WIDE) as on:
        on.daemon.marks = (swap_mark(box),)
        on.daemon.past_requests = {
            None: PastRequests(requests=(past(box, "p1"), failed), next="x"),
            "x": PastRequests(requests=(past(box, "p3"),)),
        }
        await on.press("3", "p")
        await on.until(lambda: "engine_crash" in on.text)
        assert "~57" in on.text
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
        await on.until(lambda: "status 503, failed, after 1m10s" in on.text and "meanwhile" in on.text)
        await on.press("R")
        await on.until(lambda: ("plan a replay", "p2") in [order[:2] for order in on.daemon.asked])


async def test_the_past_is_of_now_and_in_its_own_order(on: Any, box: Any) -> None:
    """The running requests have no order that a key could change unseen; a page that is opened again reads again."""
    on.daemon.past_requests = {None: PastRequests(requests=(past(box, "p1", client="older"),))}
    await on.press("3", "o")
    assert "o sorts the past, which p shows." in on.text
    await on.press("p")
    await on.until(lambda: "older" in on.text)
    assert ("past", "newest", None, None, None) in on.daemon.asked
    assert "p live" in on.lines[-1]
    table = on.app.screen.query_one(PastTable)
    await on.pilot.click(PastTable, offset=(on.lines[1].index("took"), 0))
    assert table.sorted_by is not None
    await on.press("o")
    assert table.sorted_by is None
    on.daemon.past_requests = {None: PastRequests(requests=(past(box, "p2", client="newer"),))}
    assert "slowest first" in on.text
    await on.press("1")
    assert "slowest first" not in on.text
    await on.press("3")
    await on.until(lambda: "newer" in on.text)


async def test_the_end_of_the_past_reads_on(large: Any, box: Any) -> None:
    large.daemon.past_requests = {
        None: PastRequests(requests=tuple(past(box, f"p{n}") for n in range(250)), next="x"),
        "x": PastRequests(requests=tuple(past(box, f"q{n}") for n in range(40))),
    }
    await large.press("3", "p")
    await large.until(lambda: "/200+" in large.text)
    await large.press("G")
    await large.until(lambda: "/290" in large.text)
    await large.press("G")
    assert "-290/290" in large.text


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


async def test_a_past_request_is_replayed_on_another_profile(large: Any, box: Any) -> None:
    large.daemon.past_requests = {None: PastRequests(requests=(past(box, "p1"),))}
    large.daemon.replayed = past(box, "r1", profile="qwen", finish_reason="length")
    large.daemon.match = match_answers("abc", "abX")
    await large.press("3", "p")
    await large.until(lambda: "codex" in large.text)
    await large.press("R")
    await large.until(lambda: "available then" in large.text)
    assert large.daemon.asked[-1] == ("plan a replay", "p1", box.coder)
    await large.press("G")
    await large.until(lambda: large.daemon.asked[-1] == ("plan a replay", "p1", box.gpt))  # its own is the last
    await large.press("pageup", "j")
    await large.until(
        lambda: large.daemon.asked[-1] == ("plan a replay", "p1", box.eagle) and "available then" in large.text
    )
    await large.press("enter")
    await large.until(lambda: "differ from character 3" in large.text)
    assert large.daemon.asked[-1] == ("replay", "p1", box.eagle)
    assert any("finish reason" in row and "length" in row for row in large.rows), large.text


async def test_a_request_that_was_not_captured_is_not_replayed(large: Any, box: Any) -> None:
    large.daemon.past_requests = {None: PastRequests(requests=(past(box, "p1"),))}
    await large.press("3", "p")
    await large.until(lambda: "codex" in large.text)
    large.daemon.refuses = AdmissionError("It was not captured.", code="not_captured", hint="Set `capture = true`.")
    await large.press("R")
    await large.until(lambda: "Set `capture = true`." in large.text)
    await large.press("enter")
    assert large.daemon.asked[-1][0] == "plan a replay"


def test_a_swap_meanwhile_is_labelled_once(box: Any) -> None:
    mark = swap_mark(box).replace(text="a load of many words, " * 4)
    lines = [plain_text(line) for line in request_lines(past(box, "p1"), (mark,), View(now=box.now, here=box.now), 50)]
    assert [line.split()[0] for line in lines[-2:]] == ["meanwhile", "words,"]


def test_the_parts_of_a_request_add_up_to_its_time(box: Any) -> None:
    one = past(box, "p1")
    parts = parts_of(one, (swap_mark(box),))
    assert [(part.name, part.seconds) for part in parts] == [("waits", 20), ("swap", 40), ("prefill", 4), ("decode", 6)]
    gone = past(box, "p2", granted_at=None, ttft_s=None)
    assert [(part.name, part.seconds) for part in parts_of(gone, ())] == [("waits", 70)]
    broken = past(box, "p3", ttft_s=None)
    assert [(part.name, part.seconds) for part in parts_of(broken, ())] == [("waits", 60), ("engine", 10)]


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


@pytest.mark.parametrize(("step_s", "now", "told"), [
    (3600, 1_795_000_000.0, "Mon 21 Sep 14:13"), (3600, 1_800_000_000.0, "Mon 21 Sep 2026 14:13"),
    (86400, 1_795_000_000.0, "Mon 21 Sep 2026"),
])  # fmt: skip
def test_a_moment_of_another_year_has_its_year(step_s: float, now: float, told: str) -> None:
    assert moment_text(1_790_000_000.0, step_s, now) == told


async def test_e_again_makes_the_rate_of_all_requests_large(large: Any) -> None:
    await large.press("e")
    assert "total 57.9 tok/s" in large.text
    await large.press("e")
    assert "each 28.9 tok/s" in large.text


async def test_brackets_choose_the_window_of_the_large_chart(large: Any) -> None:
    for keys, told in ((("right_square_bracket",) * 3, "-18h"), (("left_square_bracket",) * 3, "-2m")):
        await large.press(*keys)
        assert told in large.text


@pytest.mark.parametrize(("keys", "title"), [(("h",), "decode, total"), (("e", "h"), "decode, each")])
async def test_h_opens_the_history_with_the_large_chart(
    large: Any, box: Any, keys: tuple[str, ...], title: str
) -> None:
    await large.press(*keys)
    await large.settle()
    assert f"{box.gpt} · {title}" in large.lines[1]


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
    asked = [("a", HOUR_S + 9), ("a", HOUR_S + 11), ("b", 0.0)]
    assert [choice.wants(profile, now) for profile, now in asked] == [False, True, True]
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
