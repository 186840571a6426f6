"""Control routes that only read.

Must not change anything, but that edited profiles are read first.
"""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import APIRouter, Header, Query
from fastapi.responses import PlainTextResponse, Response, StreamingResponse

from sparkdash.api.answers import ProfileList
from sparkdash.api.control import ControlApi
from sparkdash.domain.engine import IncidentList, summarize_repairs
from sparkdash.domain.images import Shelf
from sparkdash.domain.memory import MemoryAccount
from sparkdash.domain.node import Diagnosis
from sparkdash.domain.profile import Profile
from sparkdash.domain.state import Snapshot
from sparkdash.domain.swap import Plan
from sparkdash.errors import AdmissionError
from sparkdash.gateway.control.routes import (
    DOCUMENT,
    STREAM,
    TEXT,
    CallerDeps,
    FeedResponse,
    KeyCheck,
    encode_lines,
    serves,
    serves_raw,
)
from sparkdash.gateway.deps import Deps
from sparkdash.gateway.relay.destinations import meant_profile
from sparkdash.limits import COUNT
from sparkdash.rules import redact_profile

_EVENT_ID = re.compile(r"[0-9]{1,18}")
"""Python itself refuses to read a number of more than 4300 digits."""


def add_routes(api: APIRouter) -> None:
    serves(api, ControlApi.state, state)
    serves_raw(api, ControlApi.events, events, FeedResponse, STREAM)
    serves(api, ControlApi.profiles, profiles)
    serves(api, ControlApi.profile, profile)
    serves(api, ControlApi.plan, plan)
    serves(api, ControlApi.incidents, incidents)
    serves(api, ControlApi.shelf, shelf)
    serves(api, ControlApi.memory, memory)
    serves(api, ControlApi.doctor, doctor)
    serves_raw(api, ControlApi.measured_runs, bench, Response, DOCUMENT)
    serves_raw(api, ControlApi.run_report, bench_run, Response, DOCUMENT)
    serves_raw(api, ControlApi.logs, logs, PlainTextResponse, TEXT)


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


async def shelf(deps: CallerDeps) -> Shelf:
    """Look for the image and the weights of each profile."""
    await deps.refresh()
    return await deps.shelf(deps.bus.snapshot.profiles) if deps.shelf else Shelf()


async def memory(deps: CallerDeps) -> MemoryAccount:
    """Account for every byte of the memory; takes up to a second."""
    if deps.memory is None:
        hint = "Without a demo, `sparkdash memory` shows who holds this box's memory."
        raise AdmissionError("The demo's memory is simulated.", code="no_memory_account", status=404, hint=hint)
    return await deps.memory()


async def doctor(
    deps: CallerDeps,
    check: Annotated[list[str] | None, Query(description="Only these checks; may be repeated")] = None,
) -> Diagnosis:
    """Run the checks of `sparkdash doctor` on this box; takes seconds."""
    if deps.examine is None:
        raise AdmissionError(
            "The demo's box is simulated.",
            code="no_doctor",
            status=404,
            hint="`sparkdash doctor` examines this one.",
        )
    return await deps.examine(check or ())


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
    if deps.runs is None:
        raise AdmissionError("Nothing is measured here.", code="no_bench", status=404)
    return Response(await deps.runs(run), media_type="application/json")


def profile_list(deps: Deps) -> ProfileList:
    snapshot = deps.bus.snapshot
    return ProfileList(profiles=snapshot.profiles, problems=snapshot.problems)
