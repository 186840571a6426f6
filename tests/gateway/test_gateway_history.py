"""The routes of the recorded past: what they take, what they refuse, and what a key for some models gets of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from sparkdash.domain.history import (
    FigureList,
    MarkList,
    PastRequests,
    RecentFigures,
    RecentSeries,
    Series,
    UsageReport,
)


@dataclass
class AskedHistory:
    """A past that remembers what it was asked, and has nothing."""

    asked: list[Any] = field(default_factory=list)

    async def figures(self) -> FigureList:
        self.asked.append(None)
        return FigureList()

    async def series(self, selection: Any) -> Series:
        self.asked.append(selection)
        return Series(
            figure=selection.figure, unit="tok/s", profile="", node="local", since=0, until=1, step_s=1,
            start=(0.0,), min=(None,), mean=(None,), max=(None,), count=(0,),
        )  # fmt: skip

    async def recent(self, selection: Any) -> RecentFigures:
        self.asked.append(selection)
        box = (RecentSeries(figure=name, profile="", node="local") for name in ("decode_tok_s", "gpu_power_w"))
        own = RecentSeries(figure="decode_tok_s", profile="alpha", node="local")
        return RecentFigures(begin=0, step_s=2, series=(*box, own))

    async def usage(self, selection: Any) -> UsageReport:
        self.asked.append(selection)
        return UsageReport(since=0, until=1, by=selection.by)

    async def requests(self, selection: Any) -> PastRequests:
        self.asked.append(selection)
        return PastRequests()

    async def marks(self, selection: Any) -> MarkList:
        self.asked.append(selection)
        return MarkList()


@pytest.fixture
def past(house: Any) -> AskedHistory:
    """The gateway's past."""
    made = AskedHistory()
    house.app.__init__(replace(house.app._deps, history=made))
    return made


async def get(house: Any, path: str, **headers: str) -> tuple[int, Any]:
    """Status and JSON of an answer."""
    reply = await house.client.get(f"/api/history/{path}", headers=headers)
    return reply.status_code, reply.json()


async def test_a_period_ends_now_and_is_as_long_as_the_route_says(house: Any, past: AskedHistory) -> None:
    """An hour of a chart, a day of sums and marks, the last ten minutes; all of the requests."""
    for path in ("series?figure=decode_tok_s", "usage", "marks", "recent", "requests", "figures"):
        assert (await get(house, path))[0] == 200, path
    series, usage, marks, recent, requests, _ = past.asked
    assert [round(one.until - one.since) for one in (series, usage, marks, recent)] == [3600, 86400, 86400, 600]
    assert (requests.since, requests.until, requests.limit, requests.sort) == (None, None, 100, "newest")
    assert (series.profile, series.node, series.points) == ("", "local", 300)


async def test_what_was_asked_arrives(house: Any, past: AskedHistory) -> None:
    """Each parameter, also a profile with a slash."""
    await get(house, "series?figure=kv_used&profile=beta/fast&node=spark2&since=5&until=9&points=7")
    await get(house, "usage?by=day&client=codex&offset_s=3600&since=5&until=9")
    await get(house, "requests?status=503&min_ttft=2&sort=ttft&limit=3&after=1.5:9")
    series, usage, requests = past.asked
    assert (series.figure, series.profile, series.node, series.since, series.until, series.points) == (
        "kv_used", "beta/fast", "spark2", 5, 9, 7,
    )  # fmt: skip
    assert (usage.by, usage.client, usage.offset_s) == ("day", "codex", 3600)
    assert (requests.status, requests.min_ttft, requests.sort, requests.after) == ("503", 2, "ttft", "1.5:9")


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("series?figure=speed", 404, "figure_not_found"),
        ("recent?figure=speed", 404, "figure_not_found"),
        ("series?figure=decode_tok_s&since=9&until=5", 400, "invalid_request"),
        ("series?figure=decode_tok_s&points=100000", 422, None),
        ("series", 422, None),
        ("usage?by=moon", 422, None),
        ("requests?status=odd", 422, None),
        ("requests?limit=0", 422, None),
        ("marks?until=nan", 422, None),
    ],
)
async def test_what_makes_no_sense_is_refused(
    house: Any, past: AskedHistory, path: str, status: int, code: str | None
) -> None:
    """Before the database is asked."""
    found = await get(house, path)
    assert found[0] in (status, 400), found
    assert code is None or found[1]["error"]["code"] == code
    assert past.asked == []


async def test_without_records_the_routes_say_so(house: Any) -> None:
    """404 with a word."""
    assert (await get(house, "figures"))[1]["error"]["code"] == "no_history"
