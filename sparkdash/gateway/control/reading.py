"""The routes that only look: `GET /api/…`.

Owns: what each of them takes. Must not change anything, but that edited profiles are read first.
"""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import APIRouter, Header, Query
from fastapi.responses import PlainTextResponse, Response, StreamingResponse

from sparkdash.domain.finding import Diagnosis
from sparkdash.domain.incident import IncidentList, summarize_repairs
from sparkdash.domain.memory.account import MemoryAccount
from sparkdash.domain.profile import Profile
from sparkdash.domain.shelf import Shelf
from sparkdash.domain.state import Snapshot
from sparkdash.domain.swap import Plan
from sparkdash.errors import AdmissionError
from sparkdash.gateway.control.answers import DOCUMENT, STREAM, TEXT, FeedResponse, encoded
from sparkdash.gateway.control.bodies import ProfileList
from sparkdash.gateway.control.seen import Holds, Seen
from sparkdash.gateway.deps import Deps
from sparkdash.limits import COUNT
from sparkdash.rules.secret import redact_profile

_EVENT_ID = re.compile(r"[0-9]{1,18}")
"""Python itself refuses to read a number of more than 4300 digits."""


def add(api: APIRouter) -> None:
    """All of them."""

    @api.get("/state", summary="Everything that is known now")
    async def state(deps: Seen) -> Snapshot:
        deps.bus.note_poll()
        return deps.bus.snapshot.replace(at=deps.clock())  # ages are counted to now, not to the last fact

    @api.get("/events", summary="The feed: a snapshot, then facts", response_class=FeedResponse, responses=STREAM)
    async def events(
        deps: Seen,
        holds: Holds,
        since: Annotated[int | None, Query(ge=0, description="Go on after this event")] = None,
        last_event_id: Annotated[str | None, Header(description="The same, as browsers say it")] = None,
    ) -> Response:
        heard = int(last_event_id) if last_event_id and _EVENT_ID.fullmatch(last_event_id) else None
        return FeedResponse(deps, holds, heard if since is None else since)

    @api.get("/profiles", summary="The catalog")
    async def profiles(deps: Seen) -> ProfileList:
        await deps.refresh()
        return listed(deps)

    @api.get("/profiles/{name:path}", summary="One whole profile, by name or alias")
    async def profile(name: str, deps: Seen) -> Profile:
        await deps.refresh()
        return redact_profile(deps.catalog().find(name))

    @api.get("/plan/{name:path}", summary="What using a profile would do")
    async def plan(name: str, deps: Seen) -> Plan:
        await deps.refresh()
        return await deps.supervisor.plan(name)

    @api.get("/incidents", summary="Times that an engine stood still, newest first, and the mean time to repair")
    async def incidents(
        deps: Seen,
        profile: Annotated[str | None, Query(description="Only those of this profile, by name or alias")] = None,
        limit: Annotated[int, Query(ge=1, le=COUNT, description="At most so many")] = 100,
    ) -> IncidentList:
        kept = deps.supervisor.incidents()
        found = kept.incidents
        if profile is not None:
            name = deps.catalog().find(profile).name
            found = tuple(one for one in found if one.profile == name)
            kept = IncidentList(incidents=found, repairs=summarize_repairs(found))
        return kept.replace(incidents=found[:limit])

    @api.get("/shelf", summary="What of each profile is on this box")
    async def shelf(deps: Seen) -> Shelf:
        await deps.refresh()
        return await deps.shelf(deps.bus.snapshot.profiles) if deps.shelf else Shelf()

    @api.get("/memory", summary="Who holds the box's memory: every byte with its holder")
    async def memory(deps: Seen) -> MemoryAccount:
        if deps.memory is None:
            raise AdmissionError("The demo's memory is simulated.", code="no_memory_account", status=404)
        return await deps.memory()

    @api.get("/doctor", summary="What of this box would keep engines from running")
    async def doctor(
        deps: Seen,
        check: Annotated[list[str] | None, Query(description="Only these checks; may be repeated")] = None,
    ) -> Diagnosis:
        if deps.examine is None:
            raise AdmissionError(
                "The demo's box is simulated.",
                code="no_doctor",
                status=404,
                hint="`sparkdash doctor` examines this one.",
            )
        return await deps.examine(check or ())

    @api.get(
        "/bench", summary="What was measured: every run, the newest first", response_class=Response, responses=DOCUMENT
    )
    async def bench(deps: Seen) -> Response:
        return await _measured(deps, None)

    @api.get("/bench/{run}", summary="The report of one run", response_class=Response, responses=DOCUMENT)
    async def bench_run(run: str, deps: Seen) -> Response:
        return await _measured(deps, run)

    @api.get("/logs/{name:path}", summary="An engine's log", response_class=PlainTextResponse, responses=TEXT)
    async def logs(
        name: str,
        deps: Seen,
        holds: Holds,
        tail: Annotated[int | None, Query(ge=0, le=COUNT, description="Only the last so many lines")] = None,
        follow: Annotated[bool, Query(description="Go on while the engine lives")] = False,
    ) -> StreamingResponse:
        lines = deps.supervisor.logs(name, tail=tail, follow=follow)
        return StreamingResponse(encoded(lines, holds), media_type="text/plain; charset=utf-8")


async def _measured(deps: Deps, run: str | None) -> Response:
    if deps.runs is None:
        raise AdmissionError("Nothing is measured here.", code="no_bench", status=404)
    return Response(await deps.runs(run), media_type="application/json")


def listed(deps: Deps) -> ProfileList:
    """The catalog, as the screens have it."""
    snapshot = deps.bus.snapshot
    return ProfileList(profiles=snapshot.profiles, problems=snapshot.problems)
