"""Control routes for measuring: the exclusive lease, and where a run is.

Owns: the order of their steps, and the notices. Must not know who may come in meanwhile: `exclusive` does.
"""

from __future__ import annotations

import time

from fastapi import APIRouter, Request

from sparkdash.api.answers import Done, LeaseGranted
from sparkdash.api.control import ControlApi
from sparkdash.api.requests import LeaseBody, NoParameters
from sparkdash.domain.event import Level, MeasuringChanged, Notice
from sparkdash.errors import AdmissionError
from sparkdash.gateway.control.caller import CallerDeps, LeaseToken
from sparkdash.gateway.control.process_exit import ProcessExitWatch
from sparkdash.gateway.control.registration import serves
from sparkdash.gateway.deps import Deps
from sparkdash.gateway.http.parsed_head import by_unix_socket
from sparkdash.gateway.shared.exclusive import TTL_S, ExclusiveHold


def add_routes(api: APIRouter) -> None:
    """Register the handlers of this module."""
    ending = ProcessExitWatch()

    def released(deps: Deps, token: str) -> bool:
        if not deps.exclusive.release(token):
            return False
        ending.forget()
        if deps.bus.snapshot.measuring is not None:
            deps.bus.publish(MeasuringChanged(measuring=None))
        return True

    def died(deps: Deps, held: ExclusiveHold) -> None:
        if released(deps, held.token):
            text = f"{held.holder} ended without letting go; others are let in again."
            deps.bus.publish(Notice(level=Level.WARNING, code="let_go", text=text))

    @serves(api, ControlApi.lease)
    async def lease(body: LeaseBody, request: Request, deps: CallerDeps) -> LeaseGranted:
        if body.token is None:
            held = deps.exclusive.take(body.holder, body.expected_s, shares=body.shares)
            if body.pid is not None and by_unix_socket(request.scope["server"]):
                ending.watch(body.pid, lambda: died(deps, held))
            what = "measures, and lets others in" if held.shares else "has the box to itself"
            deps.bus.publish(Notice(level=Level.INFO, code="held", text=f"{held.holder} {what}."))
        else:
            held = deps.exclusive.renew(body.token, body.expected_s)
        if body.measuring is not None:
            seen = body.measuring.replace(at=time.time(), ends=held.ends)
            deps.bus.publish(MeasuringChanged(measuring=seen))
        return LeaseGranted(token=held.token, ttl_s=TTL_S, ends=held.ends)

    @serves(api, ControlApi.end_lease)
    async def let_go(deps: CallerDeps, x_sparkdash_lease: LeaseToken = None) -> Done:
        released(deps, x_sparkdash_lease or "")
        return Done()

    @serves(api, ControlApi.end_measuring)
    async def end(_body: NoParameters, deps: CallerDeps) -> Done:
        deps.exclusive.end()
        if (seen := deps.bus.snapshot.measuring) is not None:
            deps.bus.publish(MeasuringChanged(measuring=seen.replace(ends=True)))
        return Done()

    @serves(api, ControlApi.resume_run)
    async def resume(run: str, _body: NoParameters, deps: CallerDeps) -> Done:
        deps.exclusive.only()
        if deps.resume is None:
            raise AdmissionError("Nothing is measured here.", code="no_bench", status=404)
        await deps.resume(run)
        return Done()
