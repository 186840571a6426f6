"""Control routes that read the recorded past."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from fastapi import APIRouter, Depends, Query

from sparkdash.api.control import ControlApi
from sparkdash.api.requests import POINTS, STATUS
from sparkdash.domain.history import (
    MOST_POINTS,
    MOST_ROWS,
    FigureList,
    MarkList,
    MarkSelection,
    PastRequests,
    RecentFigures,
    RecentSelection,
    RequestOrder,
    RequestSelection,
    Series,
    SeriesSelection,
    UsageGroup,
    UsageReport,
    UsageSelection,
    all_figures,
)
from sparkdash.domain.node import LOCAL
from sparkdash.errors import AdmissionError
from sparkdash.gateway.control.routes import CallerDeps, serves
from sparkdash.gateway.deps import Deps
from sparkdash.limits import NAME
from sparkdash.store.past import RecordedHistory

HOUR_S = 3600.0
DAY_S = 86400.0
LATEST = 1e11
"""Latest time that is accepted: the year 5138."""


class GivenPeriod(NamedTuple):
    """Beginning and end of a period as the caller gave them."""

    since: float | None
    until: float | None

    def within(self, now: float, length_s: float) -> tuple[float, float]:
        """Return begin and end; without `until` now, without `since` `length_s` before the end."""
        end = now if self.until is None else self.until
        begin = max(end - length_s, 0.0) if self.since is None else self.since
        if begin >= end:
            raise AdmissionError("The period is empty: `since` is not before `until`.", code="invalid_request")
        return begin, end


async def _given_period(
    since: Annotated[float | None, Query(ge=0, le=LATEST, description="Beginning, Unix seconds")] = None,
    until: Annotated[float | None, Query(ge=0, le=LATEST, description="End, Unix seconds; else now")] = None,
) -> GivenPeriod:
    return GivenPeriod(since, until)


class RequestPage(NamedTuple):
    """Order and place of a list of requests."""

    sort: RequestOrder
    limit: int
    after: str | None


async def _page(
    sort: Annotated[RequestOrder, Query(description="Newest first, or the greatest of a figure")] = "newest",
    limit: Annotated[int, Query(ge=1, le=MOST_ROWS, description="At most so many")] = 100,
    after: Annotated[str | None, Query(max_length=NAME, description="`next` of the answer before")] = None,
) -> RequestPage:
    return RequestPage(sort, limit, after)


Period = Annotated[GivenPeriod, Depends(_given_period)]
Page = Annotated[RequestPage, Depends(_page)]
OfProfile = Annotated[str | None, Query(max_length=NAME, description="Only this profile, by its full name")]
OfClient = Annotated[str | None, Query(max_length=NAME, description="Only this client")]


def add_routes(api: APIRouter) -> None:
    serves(api, ControlApi.history_figures, figures)
    serves(api, ControlApi.history_series, series)
    serves(api, ControlApi.history_recent, recent)
    serves(api, ControlApi.history_usage, usage)
    serves(api, ControlApi.history_requests, requests)
    serves(api, ControlApi.history_marks, marks)


async def figures(deps: CallerDeps) -> FigureList:
    """List the figures, and the engines and boxes that have records of them."""
    return await _history(deps).figures()


async def series(
    deps: CallerDeps,
    period: Period,
    figure: Annotated[str, Query(max_length=NAME, description="A name of /api/history/figures")],
    profile: OfProfile = None,
    node: Annotated[str | None, Query(max_length=NAME, description="Another node than this one")] = None,
    points: Annotated[int, Query(ge=1, le=MOST_POINTS, description="At most so many buckets, about")] = POINTS,
) -> Series:
    """Read one figure of a profile's engine, or without a profile of the box: minimum, mean and maximum by bucket."""
    history = _history(deps)
    _known(figure)
    begin, end = period.within(deps.clock(), HOUR_S)
    return await history.series(
        SeriesSelection(figure=figure, profile=profile or "", node=node or LOCAL, since=begin, until=end, points=points)
    )


async def recent(
    deps: CallerDeps,
    figure: Annotated[list[str] | None, Query(description="Only these figures; may be repeated")] = None,
    seconds: Annotated[float, Query(ge=1, le=HOUR_S, description="Length of the period")] = 600.0,
    step_s: Annotated[float, Query(ge=1, le=60, description="Seconds of a bucket")] = 2.0,
) -> RecentFigures:
    """Read figures of all engines and of the box over the last minutes."""
    history = _history(deps)
    for name in figure or ():
        _known(name)
    now = deps.clock()
    return await history.recent(
        RecentSelection(figures=tuple(figure or ()), since=now - seconds, until=now, step_s=step_s)
    )


async def usage(
    deps: CallerDeps,
    period: Period,
    by: Annotated[UsageGroup, Query(description="What the requests are added up by")] = "profile",
    profile: OfProfile = None,
    client: OfClient = None,
    offset_s: Annotated[int, Query(ge=-86400, le=86400, description="Seconds east of UTC, for the days")] = 0,
) -> UsageReport:
    """Add up the requests of a period: tokens, errors, waits, and quantiles within 1 %."""
    history = _history(deps)
    begin, end = period.within(deps.clock(), DAY_S)
    return await history.usage(
        UsageSelection(by=by, since=begin, until=end, profile=profile, client=client, offset_s=offset_s)
    )


async def requests(
    deps: CallerDeps,
    period: Period,
    page: Page,
    profile: OfProfile = None,
    client: OfClient = None,
    status: Annotated[str | None, Query(pattern=STATUS, description="done, failed, gone or an HTTP status")] = None,
    min_ttft: Annotated[float | None, Query(ge=0, description="Seconds to the first token, at least")] = None,
) -> PastRequests:
    """List ended requests: figures and names, never content."""
    return await _history(deps).requests(
        RequestSelection(
            since=period.since,
            until=period.until,
            profile=profile,
            client=client,
            status=status,
            min_ttft=min_ttft,
            sort=page.sort,
            limit=page.limit,
            after=page.after,
        )
    )


async def marks(
    deps: CallerDeps,
    period: Period,
    profile: OfProfile = None,
    limit: Annotated[int, Query(ge=1, le=MOST_ROWS, description="At most so many, the newest")] = MOST_ROWS,
) -> MarkList:
    """List the events of a period, oldest first."""
    history = _history(deps)
    begin, end = period.within(deps.clock(), DAY_S)
    return await history.marks(MarkSelection(since=begin, until=end, profile=profile, limit=limit))


def _history(deps: Deps) -> RecordedHistory:
    if deps.history is None:
        raise AdmissionError("Nothing is recorded here.", code="no_history", status=404)
    return deps.history


def _known(figure: str) -> None:
    names = [info.name for info in all_figures()]
    if figure not in names:
        raise AdmissionError(
            f"No figure is called {figure!r}.",
            code="figure_not_found",
            status=404,
            hint=f"Recorded figures: {', '.join(names)}.",
        )
