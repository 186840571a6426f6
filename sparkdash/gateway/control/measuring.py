"""Control routes for measuring: the exclusive lease, the cap of the GPU's clock, and where a run is.

Owns: the order of their steps, and the notices. Must not know who may come in meanwhile: `exclusive` does.
"""

from __future__ import annotations

import time

from fastapi import APIRouter, Request

from sparkdash.api.answers import BenchPlan, ClockState, Done, LeaseGranted
from sparkdash.api.control import ControlApi
from sparkdash.api.requests import ClockBody, LeaseBody, NoParameters, StartRunBody
from sparkdash.domain.event import Level, MeasuringChanged, Notice
from sparkdash.errors import AdmissionError
from sparkdash.gateway.control.caller import CallerDeps, LeaseToken
from sparkdash.gateway.control.process_exit import ProcessExitWatch
from sparkdash.gateway.control.registration import serves
from sparkdash.gateway.deps import Deps
from sparkdash.gateway.http.parsed_head import by_unix_socket
from sparkdash.gateway.ports import ClockCapPort
from sparkdash.gateway.shared.exclusive import TTL_S, ExclusiveHold


def add_routes(api: APIRouter) -> None:
    """Register the handlers of this module."""
    handlers = LeaseHandlers()
    serves(api, ControlApi.lease, handlers.lease)
    serves(api, ControlApi.end_lease, handlers.let_go)
    serves(api, ControlApi.clock, clock)
    serves(api, ControlApi.cap_clock, cap_clock)
    serves(api, ControlApi.end_measuring, end)
    serves(api, ControlApi.resume_run, resume)
    serves(api, ControlApi.start_run, start)


class LeaseHandlers:
    """Handlers of the exclusive lease. On the daemon's own box the lease ends with its holder's process."""

    def __init__(self) -> None:
        self._holder_exit = ProcessExitWatch()

    async def lease(self, body: LeaseBody, request: Request, deps: CallerDeps) -> LeaseGranted:
        """Take the lease, or renew it, and show the progress of the run."""
        if body.token is None:
            held = deps.exclusive.take(body.holder, body.expected_s, shares=body.shares)
            if body.pid is not None and by_unix_socket(request.scope["server"]):
                self._holder_exit.watch(body.pid, lambda: self._end_after_holder(deps, held))
            what = "measures, and lets others in" if held.shares else "has the box to itself"
            deps.bus.publish(Notice(level=Level.INFO, code="held", text=f"{held.holder} {what}."))
        else:
            held = deps.exclusive.renew(body.token, body.expected_s)
        if body.measuring is not None:
            seen = body.measuring.replace(at=time.time(), ends=held.ends)
            deps.bus.publish(MeasuringChanged(measuring=seen))
        return LeaseGranted(token=held.token, ttl_s=TTL_S, ends=held.ends)

    async def let_go(self, deps: CallerDeps, x_sparkdash_lease: LeaseToken = None) -> Done:
        """End the lease; a token that does not hold it is ignored."""
        self._release(deps, x_sparkdash_lease or "")
        return Done()

    def _release(self, deps: Deps, token: str) -> bool:
        if not deps.exclusive.release(token):
            return False
        self._holder_exit.forget()
        if deps.bus.snapshot.measuring is not None:
            deps.bus.publish(MeasuringChanged(measuring=None))
        return True

    def _end_after_holder(self, deps: Deps, held: ExclusiveHold) -> None:
        if self._release(deps, held.token):
            text = f"{held.holder} ended without letting go; others are let in again."
            deps.bus.publish(Notice(level=Level.WARNING, code="let_go", text=text))


async def clock(deps: CallerDeps) -> ClockState:
    """Return the cap in force."""
    return ClockState(cap_mhz=deps.clock_cap.mhz if deps.clock_cap else None)


async def cap_clock(body: ClockBody, deps: CallerDeps, x_sparkdash_lease: LeaseToken = None) -> ClockState:
    """Check a cap, set it for the holder of the lease, or lift it."""
    cap = _clock_cap(deps)
    if body.mhz is not None and not body.begin:
        await cap.check(body.mhz)
        return ClockState(cap_mhz=cap.mhz)
    held, token = deps.exclusive.held, x_sparkdash_lease or ""
    if held is None or not held.by(token):
        raise AdmissionError(
            "Only the holder of the lease may cap the GPU's clock.",
            code="lease_lost",
            status=409,
            hint="Take the lease first.",
        )
    if body.mhz is None:
        await cap.lift()
    else:
        await cap.cap(body.mhz, token)
    return ClockState(cap_mhz=cap.mhz)


def _clock_cap(deps: Deps) -> ClockCapPort:
    if deps.clock_cap is None:
        raise AdmissionError("This daemon cannot cap a GPU's clock.", code="clock_unsupported", status=404)
    return deps.clock_cap


async def end(_body: NoParameters, deps: CallerDeps) -> Done:
    """Ask the run that is measured to stop."""
    deps.exclusive.end()
    if (seen := deps.bus.snapshot.measuring) is not None:
        deps.bus.publish(MeasuringChanged(measuring=seen.replace(ends=True)))
    return Done()


async def resume(run: str, _body: NoParameters, deps: CallerDeps) -> Done:
    """Resume a run in a process of its own."""
    deps.exclusive.only()
    if deps.resume is None:
        raise AdmissionError("Nothing is measured here.", code="no_bench", status=404)
    await deps.resume(run)
    return Done()


async def start(body: StartRunBody, deps: CallerDeps) -> BenchPlan:
    """Plan a run; with `begin` measure it in a process of its own, unless another run is measured."""
    if deps.start_run is None:
        raise AdmissionError("Nothing is measured here.", code="no_bench", status=404)
    if body.begin:
        deps.exclusive.only()
    find = deps.catalog().find
    return await deps.start_run(StartRunBody(**{**dict(body), "profiles": [find(name).name for name in body.profiles]}))
