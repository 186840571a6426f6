"""Control routes that say which engine runs, and which profiles are A and B.

Owns: which of two marked profiles is the other. Must not decide who runs: the supervisor does.
"""

from __future__ import annotations

from fastapi import APIRouter

from sparkdash.api.answers import Done, TogglePair
from sparkdash.api.control import ControlApi
from sparkdash.api.requests import ExtendBody, NoParameters, ReleaseBody, StopBody, ToggleBody, UseBody, UseSetBody
from sparkdash.domain.event import ToggleChanged
from sparkdash.domain.profile import Profile
from sparkdash.domain.state import Snapshot
from sparkdash.domain.swap import Plan, SetPlan, SwapCause
from sparkdash.errors import AdmissionError
from sparkdash.gateway.control.caller import CallerDeps, LeaseToken
from sparkdash.gateway.control.registration import serves
from sparkdash.gateway.deps import Deps
from sparkdash.gateway.relay.model_names import meant_profile


def add_routes(api: APIRouter) -> None:
    """Register the handlers of this module."""
    serves(api, ControlApi.use, use)
    serves(api, ControlApi.use_set, use_set)
    serves(api, ControlApi.stop, stop)
    serves(api, ControlApi.release, release)
    serves(api, ControlApi.extend_load, extend_load)
    serves(api, ControlApi.cancel, cancel)
    serves(api, ControlApi.cancel_request, cancel_request)
    serves(api, ControlApi.toggle, toggle)


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
