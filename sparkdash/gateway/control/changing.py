"""Control routes that change something: which engine runs, measurements, settings, the daemon's life."""

import asyncio
import time
from functools import partial

from sparkdash.api import requests
from sparkdash.api.answers import BenchPlan, Done, LeaseGranted, ProfileList, SettingList, TogglePair
from sparkdash.domain.event import Level, MeasuringChanged, Notice, ToggleChanged
from sparkdash.domain.history import Replay
from sparkdash.domain.profile import Profile
from sparkdash.domain.request import Request
from sparkdash.domain.swap import Plan, SwapCause
from sparkdash.errors import AdmissionError
from sparkdash.gateway.control.reading import captured_request, profile_list
from sparkdash.gateway.control.routes import (
    EVENTS,
    NO_BENCH,
    ControlCall,
    StreamedAnswer,
    by_row,
    encode_pull,
    required,
)
from sparkdash.gateway.deps import Deps
from sparkdash.gateway.exclusive import TTL_S
from sparkdash.gateway.http.capture import CapturedRequest
from sparkdash.gateway.relay.admitted import meant_profile
from sparkdash.gateway.relay.replay import is_redacted, replay_request, replayed_route, wants_stream


async def replay(call: ControlCall, body: requests.ReplayBody) -> Replay:
    """Plan a replay; with `begin` carry it out, and answer when it has ended. A caller that leaves ends it."""
    deps = call.deps
    await deps.refresh()
    profile = deps.catalog().find(meant_profile(body.on, deps.catalog(), deps.choices(), lambda: deps.bus.snapshot))
    if profile.engine.is_remote:
        raise AdmissionError(
            f"{profile.name} is a remote service: a captured request is replayed on this box's engines only.",
            code="remote_profile",
            hint="What clients wrote does not leave the box by a replay.",
        )
    kept = await captured_request(deps, body.request)
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
    call.admit_holder()
    done = await replay_request(deps, kept, profile.name, call.exchange)
    return planned.replace(answer=done.row, match=done.match)


async def _row(deps: Deps, kept: CapturedRequest) -> Request | None:
    """Return the row of the captured request, from the snapshot or the recorded past."""
    found = next((one for one in deps.bus.snapshot.recent if one.id == kept.id), None)
    if found is not None or deps.history is None:
        return found
    page = await deps.history.requests(requests.PastRequestQuery(limit=1), request_id=kept.id)
    return next(iter(page.requests), None)


async def use(call: ControlCall, body: requests.UseBody) -> Plan:
    """Begin to make a profile resident."""
    deps = call.deps
    call.admit_holder()
    await deps.refresh()
    name = meant_profile(body.profile, deps.catalog(), deps.choices(), lambda: deps.bus.snapshot)
    return await deps.supervisor.use(name, cause=SwapCause(body.cause))


async def stop(call: ControlCall, body: requests.StopBody) -> Done:
    """Stop one engine, or all; who holds the lease does so to measure."""
    held, token = call.deps.exclusive.held, call.exchange.head.token
    measures = held is not None and token is not None and held.by(token)
    cause = SwapCause.BENCH if measures else SwapCause.USER
    await call.deps.supervisor.stop(body.profile, wait=body.wait, cause=cause)
    return Done()


async def release(call: ControlCall, body: requests.ReleaseBody) -> Done:
    """Let a parked profile, or all, be tried again."""
    await call.deps.supervisor.release(body.profile)
    return Done()


async def extend_load(call: ControlCall, body: requests.ExtendBody) -> Done:
    """Let a load that stands still go on for its whole limit."""
    await call.deps.supervisor.extend_load(body.profile)
    return Done()


async def cancel(call: ControlCall, _body: requests.NoParameters) -> Done:
    """Cancel every swap under way."""
    await call.deps.supervisor.cancel()
    return Done()


async def cancel_request(call: ControlCall, asked: requests.RequestId) -> Done:
    """End one request."""
    call.deps.running.cancel(asked.request_id)
    return Done()


async def toggle(call: ControlCall, body: requests.ToggleBody) -> TogglePair:
    """Set the A/B pair, and flip."""
    deps = call.deps
    if body.flip:
        call.admit_holder()
    snapshot, find = deps.bus.snapshot, deps.catalog().find
    a = _able(find(body.a)) if body.a else snapshot.toggle_a
    b = _able(find(body.b)) if body.b else snapshot.toggle_b
    if (a, b) != (snapshot.toggle_a, snapshot.toggle_b):
        deps.bus.publish(ToggleChanged(a=a, b=b))
    coming = next((swap.target for swap in snapshot.swaps_under_way if swap.target is not None), None)
    active = coming or (snapshot.active.profile if snapshot.active else None)
    if body.flip:
        active = _other(a, b, active)
        await deps.supervisor.use(active, cause=SwapCause.USER)
    return TogglePair(a=a, b=b, active=active)


def _able(profile: Profile) -> str:
    if profile.cannot_run:
        hint = f"Mark {profile.nearest} instead." if profile.nearest else None
        raise AdmissionError(f"{profile.name} cannot run here: {profile.cannot_run}.", code="cannot_run", hint=hint)
    return profile.name


def _other(a: str | None, b: str | None, active: str | None) -> str:
    if a is None or b is None:
        raise AdmissionError(
            "There is nothing to flip between: two profiles must be marked.",
            code="toggle_unset",
            status=409,
            hint="Mark them on the dashboard's page of profiles, with the keys a and b.",
        )
    return b if active == a else a


SOCKET_ONLY = frozenset(
    {
        "profiles", "runtime", "host", "port", "tls_cert", "tls_key", "host_names",
        "allowed_origins", "hf_home", "cache_dir", "capture", "guard", "history",
    }
)  # fmt: skip
"""Settings that no client's key may change: they run programs, open the port, name files, disarm the guard or
shorten the past."""


async def settings(call: ControlCall, _asked: requests.NoParameters) -> SettingList:
    """List every setting with its value, default and meaning."""
    return await call.deps.settings_list()


async def change_setting(call: ControlCall, body: requests.SettingBody) -> SettingList:
    """Write one value into config.toml, whose comments stay; a value that is not valid changes nothing."""
    if body.key[0] in SOCKET_ONLY and not call.exchange.head.unix:
        raise AdmissionError(
            f"{body.key[0]} can be changed on the daemon's own box only.",
            code="socket_only",
            status=403,
            hint="Edit config.toml there, or use its dashboard.",
        )
    return await call.deps.change_setting(body)


async def pull(call: ControlCall, body: requests.PullBody) -> StreamedAnswer:
    """Stream the progress of a pull."""
    call.deps.catalog().find(body.profile)
    return StreamedAnswer(EVENTS, encode_pull(call.deps.supervisor.pull(body.profile)))


async def reload(call: ControlCall, _body: requests.NoParameters) -> ProfileList:
    """Read the profiles again, and list them."""
    await call.deps.reload()
    return profile_list(call.deps)


async def shutdown(call: ControlCall, body: requests.ShutdownBody) -> Done:
    """End the daemon after this answer."""
    call.after_answer = partial(call.deps.shutdown, body.engines == "stop")
    return Done()


async def lease(call: ControlCall, body: requests.LeaseBody) -> LeaseGranted:
    """Take the exclusive lease, or renew it, and show the progress of the run."""
    deps = call.deps
    if body.token is None:
        held = deps.exclusive.take(body.holder, body.expected_s)
        deps.bus.publish(Notice(level=Level.INFO, code="held", text=f"{held.holder} took the box for itself."))
    else:
        held = deps.exclusive.renew(body.token, body.expected_s)
    if body.measuring is not None:
        seen = body.measuring.replace(at=time.time(), ends=held.ends)
        deps.bus.publish(MeasuringChanged(measuring=seen))
        asyncio.get_running_loop().call_later(TTL_S + 0.1, _forget_run, deps)
    return LeaseGranted(token=held.token, ttl_s=TTL_S, ends=held.ends)


async def end_lease(call: ControlCall, _asked: requests.NoParameters) -> Done:
    """End the lease; a token that does not hold it is ignored."""
    if call.deps.exclusive.release(call.exchange.head.token or ""):
        _forget_run(call.deps)
    return Done()


def _forget_run(deps: Deps) -> None:
    """Show no run any more, unless its lease was renewed: a killed holder does not end it."""
    if deps.exclusive.held is None and deps.bus.snapshot.measuring is not None:
        deps.bus.publish(MeasuringChanged(measuring=None))


async def end_measuring(call: ControlCall, _body: requests.NoParameters) -> Done:
    """Ask the run that is measured to stop."""
    deps = call.deps
    deps.exclusive.end()
    if (seen := deps.bus.snapshot.measuring) is not None:
        deps.bus.publish(MeasuringChanged(measuring=seen.replace(ends=True)))
    return Done()


async def resume_run(call: ControlCall, asked: requests.RunName) -> Done:
    """Resume a run in a process of its own."""
    call.deps.exclusive.only()
    await required(call.deps.resume, *NO_BENCH)(asked.run)
    return Done()


async def start_run(call: ControlCall, body: requests.StartRunBody) -> BenchPlan:
    """Plan a run; with `begin` measure it in a process of its own, unless another run is measured."""
    deps = call.deps
    begin_run = required(deps.start_run, *NO_BENCH)
    if body.begin:
        deps.exclusive.only()
    find = deps.catalog().find
    return await begin_run(
        requests.StartRunBody(**{**dict(body), "profiles": [find(name).name for name in body.profiles]})
    )


HANDLERS = by_row(
    use, stop, release, extend_load, cancel, cancel_request, toggle, replay, lease, end_lease, end_measuring,
    resume_run, start_run, settings, change_setting, pull, reload, shutdown,
)  # fmt: skip
