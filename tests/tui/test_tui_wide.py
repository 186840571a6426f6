"""The panels of a wide dashboard, its arrangements, and what several boxes add."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sparkdash.domain.history import Quantiles, UsageReport, UsageTotals
from sparkdash.domain.metric import Metric
from sparkdash.domain.node import NodeState, NodeStatus
from sparkdash.tui.app import SparkdashApp
from sparkdash.tui.choices import KeptChoices
from sparkdash.tui.layout import Arrangement
from sparkdash.tui.text import Style, plain_text
from sparkdash.tui.widgets.panel import Walked
from sparkdash.tui.widgets.usage import today_lines

WIDE = (200, 60)


def totals(group: str, requests: int, **more: Any) -> UsageTotals:
    told = {"prompt_tokens": requests * 1000, "cached_tokens": requests * 880, "output_tokens": requests * 200}
    return UsageTotals(group=group, requests=requests, ttft_s=Quantiles(p50=0.4, p95=1.9), **(told | more))


def usage(*groups: UsageTotals, **more: Any) -> UsageReport:
    whole = totals("all", sum(one.requests for one in groups))
    return UsageReport(since=0.0, until=1.0, by="profile", rows=groups, total=whole, **more)


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


async def test_a_panel_that_is_not_shown_reads_nothing(stage: Any, box: Any, daemon: Any) -> None:
    async with stage(box.snapshot(), size=(120, 40)) as on:
        await on.later(120)
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
