"""Control: the `/api` routes, typed.

Owns: what each route takes and gives. Must not decide anything: the supervisor does, and errors are raised as they
are (app.py renders them).
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query
from fastapi.responses import PlainTextResponse, Response, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.background import BackgroundTask
from starlette.types import Receive, Scope, Send

from sparkdash.domain.container import PullProgress
from sparkdash.domain.event import Level, MeasuringChanged, Notice, ToggleChanged
from sparkdash.domain.finding import Diagnosis
from sparkdash.domain.measuring import Measuring
from sparkdash.domain.profile import Profile, ProfileSummary
from sparkdash.domain.state import Snapshot
from sparkdash.domain.swap import Plan, SwapCause
from sparkdash.errors import AdmissionError, SparkdashError
from sparkdash.gateway import feed, problems
from sparkdash.gateway.deps import Deps
from sparkdash.gateway.exchange import Exchange
from sparkdash.gateway.exclusive import TTL_S
from sparkdash.gateway.frames import event


class _Body(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PullBody(_Body):
    """Whose image to fetch; name or alias."""

    profile: str


class UseBody(_Body):
    """Which profile to make resident, by name or alias, and on whose behalf."""

    profile: str
    cause: Literal["user", "bench"] = "user"


class LeaseBody(_Body):
    """Take the gateway for oneself; with a token, keep it."""

    holder: str = Field(min_length=1, max_length=80)
    """Who, for those who are told to wait."""
    token: str | None = None
    expected_s: float | None = Field(default=None, ge=0)
    """How long it will still take."""
    measuring: Measuring | None = None
    """Where it is, for the screens; without it they are left as they are."""


class LeaseGranted(_Body):
    """Every request of the holder carries the token in the header `x-sparkdash-lease`."""

    token: str
    ttl_s: float
    """It lapses unless it is renewed within so many seconds."""
    ends: bool = False
    """Somebody asked for its end: the holder stops, and lets go."""


class StopBody(_Body):
    """Which profile's engine to stop; null stops all."""

    profile: str | None = None


class ReleaseBody(_Body):
    """Which parked profile may be tried again; null means all."""

    profile: str | None = None


class NoBody(_Body):
    """Nothing to say: `{}`."""


class ToggleBody(_Body):
    """New marks (what is left out stays), and whether to switch."""

    a: str | None = None
    b: str | None = None
    flip: bool = False


class TrafficBody(_Body):
    """Should the demo's traffic run?"""

    on: bool


class ShutdownBody(_Body):
    """What becomes of the engines: kept ones are adopted by the next daemon."""

    engines: Literal["keep", "stop"] = "keep"


class ProfileList(_Body):
    """The whole catalog, and the files that could not be read."""

    profiles: tuple[ProfileSummary, ...]
    problems: tuple[str, ...]


class Toggle(_Body):
    """The two marked profiles. `active` is the one that runs or is being brought up, marked or not."""

    a: str | None
    b: str | None
    active: str | None


class Done(_Body):
    """The request was carried out, or is under way: the feed tells."""

    ok: bool = True


class Health(_Body):
    """The gateway is up, whatever the engines do."""

    status: Literal["ok"] = "ok"


class ErrorBody(BaseModel):
    """What went wrong."""

    model_config = ConfigDict(extra="allow")

    message: str
    type: str
    param: str | None
    code: str
    hint: str | None
    src: str


class Problem(BaseModel):
    """The body of every error."""

    error: ErrorBody


class _FeedResponse(Response):
    """The feed speaks ASGI itself: no task and no encoding per listener and event."""

    media_type = "text/event-stream"

    def __init__(self, deps: Deps, encode: feed.Encode, since: int | None, status_code: int = 200) -> None:
        super().__init__(status_code=status_code)
        self._deps, self._encode, self._since = deps, encode, since

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await feed.serve(self._deps.bus, self._encode, Exchange(scope, receive, send), self._since)


Token = Annotated[str | None, Header(description="The token of POST /api/lease")]

_ERROR = {"application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
_ANY_ERROR = {"description": "Any error", "content": _ERROR}
"""Said outright where an answer is no JSON: FastAPI would describe the error as being of the answer's type."""
STREAM: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/event-stream": {"schema": {}}}, "description": "Server-sent events"},
    "default": _ANY_ERROR,
}
TEXT: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "Lines, as they come"},
    "default": _ANY_ERROR,
}

DOCUMENT: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/json": {"schema": {}}}, "description": "As `sparkdash bench show --json` writes it"}
}


def router(deps: Deps) -> APIRouter:
    """All of `/api`."""
    api = APIRouter(prefix="/api", responses={"default": {"model": Problem, "description": "Any error"}})
    _reading(api, deps)
    _switching(api, deps)
    _leasing(api, deps)
    _housekeeping(api, deps)
    return api


def _reading(api: APIRouter, deps: Deps) -> None:
    encode = feed.Encoder()

    @api.get("/state", summary="Everything that is known now")
    async def state() -> Snapshot:
        return deps.bus.snapshot.model_copy(
            update={"at": deps.clock()}
        )  # ages are counted to now, not to the last fact

    @api.get("/events", summary="The feed: a snapshot, then facts", response_class=_FeedResponse, responses=STREAM)
    async def events(
        since: Annotated[int | None, Query(ge=0, description="Go on after this event")] = None,
        last_event_id: Annotated[str | None, Header(description="The same, as browsers say it")] = None,
    ) -> Response:
        heard = int(last_event_id) if last_event_id and last_event_id.isdecimal() else None
        return _FeedResponse(deps, encode, heard if since is None else since)

    @api.get("/profiles", summary="The catalog")
    async def profiles() -> ProfileList:
        await deps.refresh()
        return _profiles(deps)

    @api.get("/profiles/{name:path}", summary="One whole profile, by name or alias")
    async def profile(name: str) -> Profile:
        await deps.refresh()
        return deps.catalog().find(name)

    @api.get("/plan/{name:path}", summary="What using a profile would do")
    async def plan(name: str) -> Plan:
        await deps.refresh()
        return await deps.supervisor.plan(name)

    @api.get("/doctor", summary="What of this box would keep engines from running")
    async def doctor(
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
    async def bench() -> Response:
        return await _measured(deps, None)

    @api.get("/bench/{run}", summary="The report of one run", response_class=Response, responses=DOCUMENT)
    async def bench_run(run: str) -> Response:
        return await _measured(deps, run)

    @api.get("/logs/{name:path}", summary="An engine's log", response_class=PlainTextResponse, responses=TEXT)
    async def logs(
        name: str,
        tail: Annotated[int | None, Query(ge=0, description="Only the last so many lines")] = None,
        follow: Annotated[bool, Query(description="Go on while the engine lives")] = False,
    ) -> StreamingResponse:
        lines = deps.supervisor.logs(name, tail=tail, follow=follow)
        return StreamingResponse(_encoded(lines), media_type="text/plain; charset=utf-8")


async def _measured(deps: Deps, run: str | None) -> Response:
    if deps.runs is None:
        raise AdmissionError("Nothing is measured here.", code="no_bench", status=404)
    return Response(await deps.runs(run), media_type="application/json")


def _switching(api: APIRouter, deps: Deps) -> None:
    @api.post("/use", status_code=202, summary="Make a profile resident; the swap goes on by itself")
    async def use(body: UseBody, x_sparkdash_lease: Token = None) -> Plan:
        deps.exclusive.admit(x_sparkdash_lease)
        await deps.refresh()
        return await deps.supervisor.use(body.profile, cause=SwapCause(body.cause))

    @api.post("/stop", summary="Stop one engine, or all")
    async def stop(body: StopBody) -> Done:
        await deps.supervisor.stop(body.profile)
        return Done()

    @api.post("/release", summary="Let a parked profile be tried again, or all")
    async def release(body: ReleaseBody) -> Done:
        await deps.supervisor.release(body.profile)
        return Done()

    @api.post("/cancel", summary="Give the swap under way up")
    async def cancel(_body: NoBody) -> Done:
        await deps.supervisor.cancel()
        return Done()

    @api.post("/requests/{request_id}/cancel", summary="End one request; its client is told, its engine stops")
    async def cancel_request(request_id: str, _body: NoBody) -> Done:
        deps.running.cancel(request_id)
        return Done()

    @api.post("/toggle", summary="Mark two profiles A and B, and flip between them")
    async def toggle(body: ToggleBody, x_sparkdash_lease: Token = None) -> Toggle:
        if body.flip:
            deps.exclusive.admit(x_sparkdash_lease)
        return await _toggle(deps, body)


def _leasing(api: APIRouter, deps: Deps) -> None:
    @api.post("/lease", summary="Have the gateway to oneself, for a while; the same again renews it")
    async def lease(body: LeaseBody) -> LeaseGranted:
        exclusive = deps.exclusive
        if body.token is None:
            held = exclusive.take(body.holder, body.expected_s)
            deps.bus.publish(Notice(level=Level.INFO, code="held", text=f"{held.holder} has the box to itself."))
        else:
            held = exclusive.renew(body.token, body.expected_s)
        if body.measuring is not None:
            seen = body.measuring.model_copy(update={"at": time.time(), "ends": held.ends})
            deps.bus.publish(MeasuringChanged(measuring=seen))
        return LeaseGranted(token=held.token, ttl_s=TTL_S, ends=held.ends)

    @api.delete("/lease", summary="Let others in again")
    async def let_go(x_sparkdash_lease: Token = None) -> Done:
        if deps.exclusive.release(x_sparkdash_lease or "") and deps.bus.snapshot.measuring is not None:
            deps.bus.publish(MeasuringChanged(measuring=None))
        return Done()

    @api.post("/bench/end", summary="Ask the run that is measured to stop; what is measured is kept")
    async def end(_body: NoBody) -> Done:
        deps.exclusive.end()
        if (seen := deps.bus.snapshot.measuring) is not None:
            deps.bus.publish(MeasuringChanged(measuring=seen.model_copy(update={"ends": True})))
        return Done()

    @api.post("/bench/{run}/resume", status_code=202, summary="Measure what a run still lacks, in a process of its own")
    async def resume(run: str, _body: NoBody) -> Done:
        deps.exclusive.admit(None)
        if deps.resume is None:
            raise AdmissionError("Nothing is measured here.", code="no_bench", status=404)
        deps.resume(run)
        return Done()


def _housekeeping(api: APIRouter, deps: Deps) -> None:
    @api.post("/pull", summary="Fetch a profile's image", response_class=StreamingResponse, responses=STREAM)
    async def pull(body: PullBody) -> StreamingResponse:
        deps.catalog().find(body.profile)
        return StreamingResponse(_pulled(deps.supervisor.pull(body.profile)), media_type="text/event-stream")

    @api.post("/reload", summary="Read the profiles again")
    async def reload(_body: NoBody) -> ProfileList:
        await deps.reload()
        return _profiles(deps)

    @api.post("/traffic", summary="Switch the demo's own traffic")
    async def traffic(body: TrafficBody) -> Done:
        if deps.traffic is None:
            raise AdmissionError("Only the demo makes traffic of its own.", code="no_traffic", status=404)
        deps.traffic(body.on)
        return Done()

    @api.post("/shutdown", status_code=202, summary="End the daemon")
    async def shutdown(body: ShutdownBody) -> Response:
        async def end() -> None:  # a plain callable that returns an awaitable would be run in a thread, never awaited
            await deps.shutdown(body.engines == "stop")

        return Response(Done().model_dump_json(), 202, media_type="application/json", background=BackgroundTask(end))


def _profiles(deps: Deps) -> ProfileList:
    snapshot = deps.bus.snapshot
    return ProfileList(profiles=snapshot.profiles, problems=snapshot.problems)


async def _toggle(deps: Deps, body: ToggleBody) -> Toggle:
    snapshot, find = deps.bus.snapshot, deps.catalog().find
    a = find(body.a).name if body.a else snapshot.toggle_a
    b = find(body.b).name if body.b else snapshot.toggle_b
    if (a, b) != (snapshot.toggle_a, snapshot.toggle_b):
        deps.bus.publish(ToggleChanged(a=a, b=b))
    active = _present(snapshot)
    if body.flip:
        active = _other(a, b, active)
        await deps.supervisor.use(active, cause=SwapCause.USER)
    return Toggle(a=a, b=b, active=active)


def _present(snapshot: Snapshot) -> str | None:
    """The profile that runs, or that is on its way."""
    if snapshot.swap is not None and snapshot.swap.target is not None:
        return snapshot.swap.target
    return snapshot.active.profile if snapshot.active else None


def _other(a: str | None, b: str | None, active: str | None) -> str:
    if a is None or b is None:
        raise AdmissionError(
            "There is nothing to flip between: two profiles must be marked.",
            code="toggle_unset",
            status=409,
            hint="Mark them with A and B in the dashboard, or `sparkdash use --a PROFILE --b PROFILE`.",
        )
    return b if active == a else a


async def _encoded(lines: AsyncIterator[str]) -> AsyncIterator[bytes]:
    """Once the first line is out there is no status left to tell a failure with: it becomes the last line."""
    try:
        async for line in lines:
            yield line.encode("utf-8", "replace") + b"\n"
    except SparkdashError as error:
        yield f"sparkdash: {error.text()}\n".encode()


async def _pulled(steps: AsyncIterator[PullProgress]) -> AsyncIterator[bytes]:
    try:
        async for step in steps:
            yield event("progress", step.model_dump(mode="json"))
    except SparkdashError as error:
        yield event("error", problems.envelope(error))
