"""Control routes that say which engine runs, and which profiles are A and B."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request

from sparkdash.api.answers import Done, TogglePair
from sparkdash.api.control import ControlApi
from sparkdash.api.requests import (
    ExtendBody,
    NoParameters,
    ReleaseBody,
    ReplayBody,
    StopBody,
    ToggleBody,
    UseBody,
    UseSetBody,
)
from sparkdash.domain import request as requests
from sparkdash.domain.event import ToggleChanged
from sparkdash.domain.history import Replay, RequestSelection
from sparkdash.domain.profile import Profile
from sparkdash.domain.state import Snapshot
from sparkdash.domain.swap import Plan, SetPlan, SwapCause
from sparkdash.errors import AdmissionError
from sparkdash.gateway.control.routes import CallerDeps, CallerKey, LeaseToken, serves
from sparkdash.gateway.deps import CapturedRequest, Deps
from sparkdash.gateway.relay.destinations import meant_profile
from sparkdash.gateway.relay.replay import is_redacted, replay_request, replayed_route, wants_stream
from sparkdash.limits import shown


async def replay(
    body: ReplayBody, request: Request, deps: CallerDeps, key: CallerKey, x_sparkdash_lease: LeaseToken = None
) -> Replay:
    """Plan a replay; with `begin` carry it out, and answer when it has ended. A caller that leaves ends it."""
    await deps.refresh()
    profile = deps.catalog().find(meant_profile(body.on, deps.catalog(), deps.choices(), lambda: deps.bus.snapshot))
    if profile.engine.is_remote:
        raise AdmissionError(
            f"{profile.name} is a remote service: a captured request is replayed on this box's engines only.",
            code="remote_profile",
            hint="What clients wrote does not leave the box by a replay.",
        )
    kept = await _captured(deps, body.request)
    planned = Replay(
        request=kept.id,
        route=replayed_route(kept).path,
        stream=wants_stream(kept),
        redacted=is_redacted(kept),
        profile=profile.name,
        plan=await deps.supervisor.plan(profile.name),
        original=await _row(deps, kept),
    )
    if not body.begin:
        return planned
    deps.exclusive.admit(x_sparkdash_lease)
    done = await replay_request(deps, kept, profile.name, request.scope, request.receive, key)
    return planned.replace(answer=done.row, match=done.match)


async def _captured(deps: Deps, request_id: str) -> CapturedRequest:
    """Return the captured request. Raises AdmissionError with the way to have the next ones captured."""
    find = deps.captured
    kept = None if find is None else await asyncio.to_thread(find, request_id)
    if kept is not None:
        return kept
    on = "Requests are captured now; this one came before, or is too old."
    off = "`capture = true` in config.toml keeps the bodies of requests from the daemon's next start on."
    raise AdmissionError(
        f"The body of request {shown(request_id)} was not captured, so it cannot be replayed.",
        code="not_captured",
        status=404,
        hint=on if deps.capture is not None else off,
    )


async def _row(deps: Deps, kept: CapturedRequest) -> requests.Request | None:
    """Return the row of the captured request, from the snapshot or the recorded past."""
    found = next((one for one in deps.bus.snapshot.recent if one.id == kept.id), None)
    if found is not None or deps.history is None:
        return found
    page = await deps.history.requests(RequestSelection(id=kept.id, limit=1))
    return next(iter(page.requests), None)


def add_routes(api: APIRouter) -> None:
    serves(api, ControlApi.use, use)
    serves(api, ControlApi.use_set, use_set)
    serves(api, ControlApi.stop, stop)
    serves(api, ControlApi.release, release)
    serves(api, ControlApi.extend_load, extend_load)
    serves(api, ControlApi.cancel, cancel)
    serves(api, ControlApi.cancel_request, cancel_request)
    serves(api, ControlApi.toggle, toggle)
    serves(api, ControlApi.replay, replay)


async def use(body: UseBody, deps: CallerDeps, x_sparkdash_lease: LeaseToken = None) -> Plan:
    """Begin to make a profile resident."""
    deps.exclusive.admit(x_sparkdash_lease)
    await deps.refresh()
    name = meant_profile(body.profile, deps.catalog(), deps.choices(), lambda: deps.bus.snapshot)
    return await deps.supervisor.use(name, cause=SwapCause(body.cause))


async def use_set(body: UseSetBody, deps: CallerDeps, x_sparkdash_lease: LeaseToken = None) -> SetPlan:
    """Begin to bring up a set of profiles, or only plan it."""
    if body.begin:
        deps.exclusive.admit(x_sparkdash_lease)
    await deps.refresh()
    return await deps.supervisor.use_set(body.name, begin=body.begin)


async def stop(body: StopBody, deps: CallerDeps) -> Done:
    """Stop one engine, or all."""
    await deps.supervisor.stop(body.profile, wait=body.wait)
    return Done()


async def release(body: ReleaseBody, deps: CallerDeps) -> Done:
    """Let a parked profile, or all, be tried again."""
    await deps.supervisor.release(body.profile)
    return Done()


async def extend_load(body: ExtendBody, deps: CallerDeps) -> Done:
    """Let a load that stands still go on for its whole limit."""
    await deps.supervisor.extend_load(body.profile)
    return Done()


async def cancel(_body: NoParameters, deps: CallerDeps) -> Done:
    """Cancel every swap under way."""
    await deps.supervisor.cancel()
    return Done()


async def cancel_request(request_id: str, _body: NoParameters, deps: CallerDeps) -> Done:
    """End one request."""
    deps.running.cancel(request_id)
    return Done()


async def toggle(body: ToggleBody, deps: CallerDeps, x_sparkdash_lease: LeaseToken = None) -> TogglePair:
    """Set the A/B pair, and flip."""
    if body.flip:
        deps.exclusive.admit(x_sparkdash_lease)
    return await _toggle(deps, body)


async def _toggle(deps: Deps, body: ToggleBody) -> TogglePair:
    snapshot, find = deps.bus.snapshot, deps.catalog().find
    a = _able(find(body.a)) if body.a else snapshot.toggle_a
    b = _able(find(body.b)) if body.b else snapshot.toggle_b
    if (a, b) != (snapshot.toggle_a, snapshot.toggle_b):
        deps.bus.publish(ToggleChanged(a=a, b=b))
    active = _present(snapshot)
    if body.flip:
        active = _other(a, b, active)
        await deps.supervisor.use(active, cause=SwapCause.USER)
    return TogglePair(a=a, b=b, active=active)


def _able(profile: Profile) -> str:
    if profile.cannot_run:
        hint = f"Mark {profile.nearest} instead." if profile.nearest else None
        raise AdmissionError(f"{profile.name} cannot run here: {profile.cannot_run}.", code="cannot_run", hint=hint)
    return profile.name


def _present(snapshot: Snapshot) -> str | None:
    coming = next((swap.target for swap in snapshot.swaps_under_way if swap.target is not None), None)
    return coming or (snapshot.active.profile if snapshot.active else None)


def _other(a: str | None, b: str | None, active: str | None) -> str:
    if a is None or b is None:
        raise AdmissionError(
            "There is nothing to flip between: two profiles must be marked.",
            code="toggle_unset",
            status=409,
            hint="Mark them with A and B in the dashboard, or `sparkdash use --a PROFILE --b PROFILE`.",
        )
    return b if active == a else a
