"""Control routes for measuring: the exclusive lease, and where a run is."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable

from fastapi import APIRouter, Request

from sparkdash.api.answers import BenchPlan, Done, LeaseGranted
from sparkdash.api.control import ControlApi
from sparkdash.api.requests import LeaseBody, NoParameters, StartRunBody
from sparkdash.domain.event import Level, MeasuringChanged, Notice
from sparkdash.errors import AdmissionError
from sparkdash.gateway.control.routes import CallerDeps, LeaseToken, serves
from sparkdash.gateway.deps import Deps
from sparkdash.gateway.http.exchange import by_unix_socket
from sparkdash.gateway.shared.exclusive import TTL_S, ExclusiveHold


class ProcessExitWatch:
    """Watches one process at a time."""

    def __init__(self) -> None:
        self._fd: int | None = None

    def watch(self, pid: int, tell: Callable[[], None]) -> None:
        """Have the loop call `tell` once the process has ended; watch no other process from then on.

        A pid without a process is ignored: the sender may run in a container, where pids differ.
        """
        self.forget()
        try:
            self._fd = os.pidfd_open(pid)
        except OSError:
            return
        asyncio.get_running_loop().add_reader(self._fd, self._on_exit, tell)

    def forget(self) -> None:
        """Stop watching; a second call does nothing."""
        if self._fd is not None:
            asyncio.get_running_loop().remove_reader(self._fd)
            os.close(self._fd)
            self._fd = None

    def _on_exit(self, tell: Callable[[], None]) -> None:
        self.forget()
        tell()


def add_routes(api: APIRouter) -> None:
    handlers = LeaseHandlers()
    serves(api, ControlApi.lease, handlers.lease)
    serves(api, ControlApi.end_lease, handlers.let_go)
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
