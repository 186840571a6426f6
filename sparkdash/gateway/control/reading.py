"""Control routes that only read, the recorded past included; but edited profiles are read first."""

from __future__ import annotations

import asyncio
import re
from typing import Annotated, NamedTuple

from fastapi import APIRouter, Depends, Header, Query
from fastapi.responses import PlainTextResponse, Response, StreamingResponse

from sparkdash.api.answers import CapturedText, ProfileList
from sparkdash.api.control import ControlApi
from sparkdash.api.requests import POINTS, STATUS
from sparkdash.domain.engine import IncidentList, summarize_repairs
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
from sparkdash.domain.images import Inventory
from sparkdash.domain.memory import MemoryAccount
from sparkdash.domain.node import LOCAL, Diagnosis
from sparkdash.domain.profile import Profile
from sparkdash.domain.state import Snapshot
from sparkdash.domain.swap import Plan
from sparkdash.errors import AdmissionError
from sparkdash.gateway.control.routes import (
    DOCUMENT,
    NO_BENCH,
    STREAM,
    TEXT,
    CallerDeps,
    FeedResponse,
    KeyCheck,
    encode_lines,
    required,
    serves,
    serves_raw,
)
from sparkdash.gateway.deps import Deps
from sparkdash.gateway.http.capture import CapturedRequest
from sparkdash.gateway.relay.admitted import meant_profile
from sparkdash.limits import COUNT, NAME, shown
from sparkdash.rules import redact_profile
from sparkdash.store.past import RecordedHistory

_EVENT_ID = re.compile(r"[0-9]{1,18}")
"""Python itself refuses to read a number of more than 4300 digits."""


async def state(deps: CallerDeps) -> Snapshot:
    """Return the whole state, with ages counted to now. A poll counts as a listener for 15 s."""
    deps.bus.note_poll()
    return deps.bus.snapshot.replace(at=deps.clock())


async def events(
    deps: CallerDeps,
    key_holds: KeyCheck,
    since: Annotated[int | None, Query(ge=0, description="Go on after this event")] = None,
    last_event_id: Annotated[str | None, Header(description="The same, as browsers say it")] = None,
) -> Response:
    """Stream a snapshot, then each fact with its number."""
    heard = int(last_event_id) if last_event_id and _EVENT_ID.fullmatch(last_event_id) else None
    return FeedResponse(deps, key_holds, heard if since is None else since)


async def profiles(deps: CallerDeps) -> ProfileList:
    """Read the profile files again where they changed, and list them."""
    await deps.refresh()
    return profile_list(deps)


async def profile(name: str, deps: CallerDeps) -> Profile:
    """Return one profile, with secrets masked."""
    await deps.refresh()
    return redact_profile(deps.catalog().find(name))


async def plan(name: str, deps: CallerDeps) -> Plan:
    """Say what `use` would evict, whether the profile fits, and how long it takes."""
    await deps.refresh()
    return await deps.supervisor.plan(meant_profile(name, deps.catalog(), deps.choices(), lambda: deps.bus.snapshot))


async def incidents(
    deps: CallerDeps,
    profile: Annotated[str | None, Query(description="Only those of this profile, by name or alias")] = None,
    limit: Annotated[int, Query(ge=1, le=COUNT, description="At most so many")] = 100,
) -> IncidentList:
    """List incidents, of all profiles or of one."""
    kept = deps.supervisor.incidents()
    found = kept.incidents
    if profile is not None:
        name = deps.catalog().find(profile).name
        found = tuple(one for one in found if one.profile == name)
        kept = IncidentList(incidents=found, repairs=summarize_repairs(found))
    return kept.replace(incidents=found[:limit])


async def inventory(deps: CallerDeps) -> Inventory:
    """Look for the image and the weights of each profile."""
    await deps.refresh()
    return await deps.inventory(deps.bus.snapshot.profiles) if deps.inventory else Inventory()


async def memory(deps: CallerDeps) -> MemoryAccount:
    """Account for every byte of the memory; takes up to a second."""
    hint = "Without a demo, `sparkdash memory` shows who holds this box's memory."
    return await required(deps.memory, "The demo's memory is simulated.", "no_memory_account", hint)()


async def doctor(
    deps: CallerDeps,
    check: Annotated[list[str] | None, Query(description="Only these checks; may be repeated")] = None,
) -> Diagnosis:
    """Run the checks of `sparkdash doctor` on this box; takes seconds."""
    hint = "`sparkdash doctor` examines this one."
    return await required(deps.examine, "The demo's box is simulated.", "no_doctor", hint)(check or ())


async def bench(deps: CallerDeps) -> Response:
    """List the measured runs."""
    return await _measured(deps, None)


async def bench_run(run: str, deps: CallerDeps) -> Response:
    """Return the report of one run."""
    return await _measured(deps, run)


async def logs(
    name: str,
    deps: CallerDeps,
    key_holds: KeyCheck,
    tail: Annotated[int | None, Query(ge=0, le=COUNT, description="Only the last so many lines")] = None,
    follow: Annotated[bool, Query(description="Go on while the engine lives")] = False,
) -> StreamingResponse:
    """Stream the log of an engine, also after its container is gone."""
    lines = deps.supervisor.logs(name, tail=tail, follow=follow)
    return StreamingResponse(encode_lines(lines, key_holds), media_type="text/plain; charset=utf-8")


async def _measured(deps: Deps, run: str | None) -> Response:
    return Response(await required(deps.runs, *NO_BENCH)(run), media_type="application/json")


def profile_list(deps: Deps) -> ProfileList:
    snapshot = deps.bus.snapshot
    return ProfileList(profiles=snapshot.profiles, problems=snapshot.problems)


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
    session: Annotated[str | None, Query(description="Session, as the client's header names it")] = None,
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
            session=session,
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
    return required(deps.history, "Nothing is recorded here.", "no_history")


def _known(figure: str) -> None:
    names = [info.name for info in all_figures()]
    if figure not in names:
        raise AdmissionError(
            f"No figure is called {figure!r}.",
            code="figure_not_found",
            status=404,
            hint=f"Recorded figures: {', '.join(names)}.",
        )


async def captured_request(deps: Deps, request_id: str) -> CapturedRequest:
    """Return the captured request. Raises AdmissionError with the way to have the next ones captured."""
    find = deps.captured
    kept = None if find is None else await asyncio.to_thread(find, request_id)
    if kept is not None:
        return kept
    on = "Requests are captured now; this one came before, or is too old."
    off = "`capture = true` in config.toml keeps the bodies of requests from the daemon's next start on."
    raise AdmissionError(
        f"The body of request {shown(request_id)} was not captured.",
        code="not_captured",
        status=404,
        hint=on if deps.capture is not None else off,
    )


async def request_text(request_id: str, deps: CallerDeps) -> CapturedText:
    kept = await captured_request(deps, request_id)
    return CapturedText(request=kept.id, body=kept.body, answer=kept.answer)


def add_routes(api: APIRouter) -> None:
    serves(api, ControlApi.state, state)
    serves_raw(api, ControlApi.events, events, FeedResponse, STREAM)
    serves(api, ControlApi.profiles, profiles)
    serves(api, ControlApi.profile, profile)
    serves(api, ControlApi.plan, plan)
    serves(api, ControlApi.incidents, incidents)
    serves(api, ControlApi.inventory, inventory)
    serves(api, ControlApi.memory, memory)
    serves(api, ControlApi.doctor, doctor)
    serves_raw(api, ControlApi.measured_runs, bench, Response, DOCUMENT)
    serves_raw(api, ControlApi.run_report, bench_run, Response, DOCUMENT)
    serves_raw(api, ControlApi.logs, logs, PlainTextResponse, TEXT)
    serves(api, ControlApi.history_figures, figures)
    serves(api, ControlApi.history_series, series)
    serves(api, ControlApi.history_recent, recent)
    serves(api, ControlApi.history_usage, usage)
    serves(api, ControlApi.history_requests, requests)
    serves(api, ControlApi.history_marks, marks)
    serves(api, ControlApi.request_text, request_text)
