"""The screens at every size: the rows of the dashboard, small terminals, wide ones and what several boxes add."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkdash.domain.event import Measuring
from sparkdash.domain.history import Quantiles, Series, UsageReport, UsageTotals
from sparkdash.domain.memory import Floors, Guard, GuardLevel
from sparkdash.domain.metric import Metric
from sparkdash.domain.node import NodeState, NodeStatus
from sparkdash.domain.request import RequestState
from sparkdash.tui.app import SparkdashApp
from sparkdash.tui.choices import KeptChoices
from sparkdash.tui.layout import BARS, Arrangement, Contents, chart_height, has_two_columns, heights, is_compact
from sparkdash.tui.text import Style, plain_text
from sparkdash.tui.widgets.chart import ChartPanel
from sparkdash.tui.widgets.memory import guard_next
from sparkdash.tui.widgets.panel import Walked
from sparkdash.tui.widgets.usage import columns_for, today_lines, totals_line
from sparkdash.units import GIB

CONTENTS = st.builds(
    Contents, beside=st.integers(0, 12), memory=st.integers(4, 8), gpu=st.integers(0, 2), charted=st.booleans()
)


SHOWN = st.sampled_from(Arrangement)


@given(columns=st.integers(40, 400), rows=st.integers(22, 120), wanted=CONTENTS, shown=SHOWN)
def test_the_heights_add_up_to_the_terminal(columns: int, rows: int, wanted: Contents, shown: Arrangement) -> None:
    got = heights(columns, rows, wanted, shown)
    assert min(got) >= 0
    left = got.card + got.beside + got.memory_chart + got.power + got.swaps + wanted.memory + wanted.gpu
    if has_two_columns(columns, rows, shown):
        assert left == rows - BARS
        assert got.requests + got.today + got.weeks + got.log == rows - BARS
    else:
        assert left + got.requests == rows - BARS or got.card == 1
        assert got.today == got.weeks == got.power == got.log == 0


@given(columns=st.integers(60, 400), rows=st.integers(24, 120), wanted=CONTENTS, shown=SHOWN)
def test_a_load_beside_takes_its_rows_from_the_card_alone(
    columns: int, rows: int, wanted: Contents, shown: Arrangement
) -> None:
    """The panels below keep their height, and their place by at most the rounding of one row."""
    before = heights(columns, rows, wanted, shown)
    after = heights(columns, rows, wanted._replace(beside=wanted.beside + 1), shown)
    below = ("memory_chart", "power", "swaps", "today", "weeks", "log")
    assert [getattr(after, name) for name in below] == [getattr(before, name) for name in below]
    assert abs(after.requests - before.requests) <= 1


@pytest.mark.parametrize(("columns", "rows"), [(200, 60), (300, 80)])
def test_a_wide_terminal_has_every_panel(columns: int, rows: int) -> None:
    got = heights(columns, rows, Contents(beside=3, memory=5, gpu=1))
    assert min(got.today, got.weeks) >= 7
    assert min(got.card, got.requests, got.log, got.swaps, got.power) >= 6


@given(columns=st.integers(60, 400), rows=st.integers(22, 120), wanted=CONTENTS)
def test_hero_shows_the_figure_and_rows_shows_the_requests(columns: int, rows: int, wanted: Contents) -> None:
    every, hero, few = (heights(columns, rows, wanted, shown) for shown in Arrangement)
    assert (hero.requests, hero.memory_chart) == (0, 0)
    assert hero.card >= every.card >= min(few.card, every.card)
    assert few.requests + few.swaps >= every.requests


@pytest.mark.parametrize("shown", Arrangement)
@pytest.mark.parametrize("rows", [10, 15, 21])
def test_a_low_terminal_has_no_frames_and_all_its_rows(rows: int, shown: Arrangement) -> None:
    wanted = Contents(beside=1, memory=1, gpu=0)
    got = heights(60, rows, wanted, shown)
    assert is_compact(rows)
    assert got.card + got.beside + got.requests + wanted.memory == rows - 2


def test_the_chart_of_the_history_leaves_no_void_below_a_short_table() -> None:
    """A long table keeps a part of the screen, a low terminal its least chart."""
    assert chart_height(80, 5) == 57
    assert chart_height(60, 30) == 24
    assert chart_height(24, 40) == 14
    assert chart_height(15, 5) == 9


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


@pytest.mark.parametrize(("width", "told"), [
    (110, "decode, each · week  last  40 tok/s (1 to 60 tok/s)  the week before 20 tok/s (1 to 60 tok/s)  +100 %"),
    (75, "decode, each · week  last  40 tok/s  the week before 20 tok/s  +100 %"),
    (64, "decode, each · week  40 tok/s  the week before 20 tok/s  +100 %"),
    (50, "last  40 tok/s  the week before 20 tok/s  +100 %"), (45, "40 tok/s  the week before 20 tok/s  +100 %"),
])  # fmt: skip
def test_the_edge_of_a_chart_loses_spans_before_the_moment_and_its_title_last(width: int, told: str) -> None:
    chart = ChartPanel()
    chart.title, chart.second_name = "decode, each · week", "the week before"
    chart.first, chart.second = (
        Series(figure="decode_tok_s", unit="tok/s", profile="a", node="local", since=0.0, until=1.0, step_s=1.0,
               start=(0.0,), min=(1.0,), mean=(mean,), max=(60.0,), count=(9,))
        for mean in (40.0, 20.0)
    )  # fmt: skip
    assert plain_text(chart._head(width)) == told


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


WIDE = (200, 60)


def totals(group: str, requests: int, **more: Any) -> UsageTotals:
    told = {"prompt_tokens": requests * 1000, "cached_tokens": requests * 880, "output_tokens": requests * 200}
    return UsageTotals(group=group, requests=requests, ttft_s=Quantiles(p50=0.4, p95=1.9), **(told | more))


def usage(*groups: UsageTotals, **more: Any) -> UsageReport:
    whole = totals("all", sum(one.requests for one in groups))
    return UsageReport(since=0.0, until=1.0, by="profile", rows=groups, total=whole, **more)


def test_requests_without_a_key_or_session_have_a_dash() -> None:
    assert plain_text(totals_line(totals("", 3), columns_for(78), 78)).startswith(" -  ")


async def test_a_wide_dashboard_adds_up_today_and_lays_this_week_over_the_last(
    stage: Any, box: Any, daemon: Any
) -> None:
    """Both are read from the daemon's history; energy stands in the edge."""
    daemon.usage = usage(totals(box.gpt, 1204), totals("embed-0.6b", 300), busy_wh=940.0, idle_wh=370.0)
    async with stage(box.snapshot(), size=WIDE) as on:
        await on.until(lambda: "all 2" in on.text)
        assert "940.0 Wh busy, 370.0 idle" in on.text
        row = next(line for line in on.rows if "embed-0.6b" in line)
        assert "300" in row
        await on.until(lambda: "the week before 50" in on.text)
        week, before = [one for one in daemon.asked if one[0] == "series"][:2]
        assert week[1:3] == (Metric.DECODE_EACH.value, box.gpt)
        assert week[3] == before[4] == box.now - 7 * 86400.0


async def test_a_panel_that_is_not_shown_reads_nothing(large: Any, daemon: Any) -> None:
    await large.later(120)
    assert not [one for one in daemon.asked if one[0] in ("series", "usage")]


def test_groups_without_a_row_are_counted() -> None:
    """Nothing is left out silently; clients follow where rows are left."""
    found = usage(*(totals(f"profile-{number}", 10 - number) for number in range(6)))
    few = [plain_text(line) for line in today_lines(found, found, 88, 6)]
    assert len(few) == 6
    assert few[-1].startswith(" + 3 more: profile-3, profile-4")
    clients = usage(totals("codex", 3))
    assert [plain_text(line).split()[0] for line in today_lines(found, clients, 88, 12)][-2:] == ["by", "codex"]


async def test_v_goes_through_the_arrangements_and_keeps_them(
    stage: Any, daemon: Any, box: Any, tmp_path: Path
) -> None:
    kept = KeptChoices(tmp_path / "dashboard.json")
    kept.keep("theme", "safe")
    async with stage(box.snapshot(), size=(120, 40), kept=kept) as on:
        await on.press("v")
        assert on.app.view.arrangement is Arrangement.HERO
        assert "codex" not in on.text
        await on.press("v")
        card, requests = (on.app.screen.query_one(name).size.height for name in ("EngineCard", "RequestTable"))
        assert requests > card
    assert SparkdashApp(lambda: daemon, daemon.address, kept=kept).view.arrangement is Arrangement.ROWS
    assert json.loads((tmp_path / "dashboard.json").read_text()) == {"theme": "safe", "arrangement": "rows"}


@pytest.mark.parametrize("size", [(60, 15), (80, 24), (200, 60)])
@pytest.mark.parametrize("shown", Arrangement)
async def test_every_arrangement_shows_the_figure_whole(
    stage: Any, box: Any, size: tuple[int, int], shown: Arrangement
) -> None:
    async with stage(box.snapshot(), size=size) as on:
        on.app.arrange(shown)
        await on.settle()
        assert [len(line) for line in on.lines] == [size[0]] * size[1]
        assert "┏━╸╺━┓ ┏━┓" in on.text or "██████     ██    ██████" in on.text
        assert "mem" in on.text
        assert ("codex" in on.text) is (shown is not Arrangement.HERO)


async def test_several_boxes_say_which_one_has_a_request(stage: Any, box: Any) -> None:
    here, there = box.request("here", node="local"), box.request("there", node="spark2", client="cline")
    found = {one.id: one for one in (here, there)}
    nodes = {"spark2": NodeState(name="spark2", status=NodeStatus.REACHABLE, since=box.now - 60)}
    async with stage(box.snapshot(requests=found), size=WIDE) as on:
        assert "node" not in on.text
        await on.tell(box.snapshot(requests=found, nodes=nodes, seq=200))
        assert " spark2 " in next(line for line in on.rows if "cline" in line)
        assert " spark-1 " in next(line for line in on.rows if "codex" in line and "gpt" in line)


async def test_the_panel_that_has_the_keys_is_lit_and_names_them(stage: Any, box: Any) -> None:
    """The requests have it first, then what Tab moves to; never two frames."""
    async with stage(box.snapshot(), size=WIDE) as on:
        lit = []
        for _ in range(3):
            frames = [panel for panel in on.app.screen.query(Walked) if panel.size.width]
            edges = {type(panel).__name__: panel._lines[0] for panel in frames}
            (one,) = [name for name, edge in edges.items() if edge[0].style is not Style.FAINT]
            lit.append((one, "⏎ opens" in plain_text(edges[one]) or "space hold" in plain_text(edges[one])))
            assert sum("⏎ opens" in line or "space hold" in line for line in on.rows) == 1
            await on.press("tab")
        assert lit == [("RequestTable", True), ("LogPanel", True), ("LogPanel", True)], (
            "Tab is the next engine in a log"
        )
