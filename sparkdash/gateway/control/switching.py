"""The routes that say which engine runs, and the two marks A and B.

Owns: what each of them takes, and which of two marked profiles is the other. Must not decide who runs: the supervisor does.
"""

from __future__ import annotations

from fastapi import APIRouter

from sparkdash.domain.event import ToggleChanged
from sparkdash.domain.profile import Profile
from sparkdash.domain.state import Snapshot
from sparkdash.domain.swap import Plan, SwapCause
from sparkdash.errors import AdmissionError
from sparkdash.gateway.control.bodies import Done, NoBody, ReleaseBody, StopBody, Toggle, ToggleBody, Token, UseBody
from sparkdash.gateway.control.seen import Seen
from sparkdash.gateway.deps import Deps


def add(api: APIRouter) -> None:
    """All of them."""

    @api.post("/use", status_code=202, summary="Make a profile resident; the swap goes on by itself")
    async def use(body: UseBody, deps: Seen, x_sparkdash_lease: Token = None) -> Plan:
        deps.exclusive.admit(x_sparkdash_lease)
        await deps.refresh()
        return await deps.supervisor.use(body.profile, cause=SwapCause(body.cause))

    @api.post("/stop", summary="Stop one engine, or all; answered when it is gone, or at once with `wait: false`")
    async def stop(body: StopBody, deps: Seen) -> Done:
        await deps.supervisor.stop(body.profile, wait=body.wait)
        return Done()

    @api.post("/release", summary="Let a parked profile be tried again, or all")
    async def release(body: ReleaseBody, deps: Seen) -> Done:
        await deps.supervisor.release(body.profile)
        return Done()

    @api.post("/cancel", summary="Give the swap under way up")
    async def cancel(_body: NoBody, deps: Seen) -> Done:
        await deps.supervisor.cancel()
        return Done()

    @api.post("/requests/{request_id}/cancel", summary="End one request; its client is told, its engine stops")
    async def cancel_request(request_id: str, _body: NoBody, deps: Seen) -> Done:
        deps.running.cancel(request_id)
        return Done()

    @api.post("/toggle", summary="Mark two profiles A and B, and flip between them")
    async def toggle(body: ToggleBody, deps: Seen, x_sparkdash_lease: Token = None) -> Toggle:
        if body.flip:
            deps.exclusive.admit(x_sparkdash_lease)
        return await _toggle(deps, body)


async def _toggle(deps: Deps, body: ToggleBody) -> Toggle:
    snapshot, find = deps.bus.snapshot, deps.catalog().find
    a = _able(find(body.a)) if body.a else snapshot.toggle_a
    b = _able(find(body.b)) if body.b else snapshot.toggle_b
    if (a, b) != (snapshot.toggle_a, snapshot.toggle_b):
        deps.bus.publish(ToggleChanged(a=a, b=b))
    active = _present(snapshot)
    if body.flip:
        active = _other(a, b, active)
        await deps.supervisor.use(active, cause=SwapCause.USER)
    return Toggle(a=a, b=b, active=active)


def _able(profile: Profile) -> str:
    if profile.cannot_run:
        hint = f"Mark {profile.nearest} instead." if profile.nearest else None
        raise AdmissionError(f"{profile.name} cannot run here: {profile.cannot_run}.", code="cannot_run", hint=hint)
    return profile.name


def _present(snapshot: Snapshot) -> str | None:
    """The profile that runs, or that is on its way."""
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
