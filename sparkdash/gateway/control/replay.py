"""Control route that replays a captured request on another profile.

Owns: which request and which profile, and that the plan can be had without the replay. Rule: no text of a request or an
answer is told.
"""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request

from sparkdash.api.control import ControlApi
from sparkdash.api.requests import ReplayBody
from sparkdash.domain import lease
from sparkdash.domain.history import Replay, RequestSelection
from sparkdash.domain.profile import EngineKind
from sparkdash.errors import AdmissionError
from sparkdash.gateway.control.caller import CallerDeps, CallerKey, LeaseToken
from sparkdash.gateway.control.registration import serves
from sparkdash.gateway.deps import Deps
from sparkdash.gateway.relay.model_names import meant_profile
from sparkdash.gateway.relay.replay import is_redacted, replay_request, replayed_route, wants_stream
from sparkdash.gateway.shared.captured_request import CapturedRequest
from sparkdash.limits import shown


def add_routes(api: APIRouter) -> None:
    """Register the handlers of this module."""
    serves(api, ControlApi.replay, replay)


async def replay(
    body: ReplayBody, request: Request, deps: CallerDeps, key: CallerKey, x_sparkdash_lease: LeaseToken = None
) -> Replay:
    """Plan a replay; with `begin` carry it out, and answer when it has ended. A caller that leaves ends it."""
    await deps.refresh()
    profile = deps.catalog().find(meant_profile(body.on, deps.catalog(), deps.choices(), lambda: deps.bus.snapshot))
    if profile.engine is EngineKind.REMOTE:
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


async def _row(deps: Deps, kept: CapturedRequest) -> lease.Request | None:
    """Return the row of the captured request, from the snapshot or the recorded past."""
    found = next((one for one in deps.bus.snapshot.recent if one.id == kept.id), None)
    if found is not None or deps.history is None:
        return found
    page = await deps.history.requests(RequestSelection(id=kept.id, limit=1))
    return next(iter(page.requests), None)
