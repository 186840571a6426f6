"""Looks: all signals of one engine at one moment, for the judge of liveness.

No part is waited for longer than LOOK_S, whatever hangs: the engine, the runtime, or a process in the driver. A part
that is late is None.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple
from urllib.parse import urlsplit

from sparkdash.domain.engine import Engine, EngineState
from sparkdash.domain.metric import EngineFigures, GpuFigures
from sparkdash.domain.profile import Profile
from sparkdash.errors import SparkdashError
from sparkdash.host.processes import activity
from sparkdash.host.processes.activity import Activity
from sparkdash.host.thread import in_thread
from sparkdash.supervisor.decide.judge import EngineSignals, HealthAnswer
from sparkdash.supervisor.liveness.probe import health
from sparkdash.supervisor.tools import Tools

LOOK_S = 2.5
"""Limit of everything that a look waits for; the probe of the health route has a shorter one of its own."""
FRESH_S = 15.0
"""Age up to which figures are of this moment: telemetry asks every 5 s, and an answer may take 3 s."""
_HERE = frozenset({"127.0.0.1", "localhost", "::1"})
_LOADS = frozenset({EngineState.CREATING, EngineState.LOADING, EngineState.WARMING})


class HeldRequests(NamedTuple):
    """Requests of ours that an engine holds at one moment."""

    requests: int
    held_up: int
    relayed_at: float | None
    """Monotonic time of the last byte of any answer, of those that are over too; None before the first."""


class SignalReader:
    """Looks at engines. `held` counts what an engine holds of ours."""

    def __init__(
        self,
        tools: Tools,
        held: Callable[[Engine], HeldRequests],
        figures: Callable[[str], EngineFigures | None],
    ) -> None:
        self._tools = tools
        self._held = held
        self._figures = figures
        self._reading: set[str] = set()
        """Containers whose processes a thread looks at; one that hangs in the kernel is not joined by others."""

    async def look(self, profile: Profile, engine: Engine, lag_s: float = 0.0) -> EngineSignals:
        """Look at this incarnation now; takes less than 3 s. `lag_s`: how late the caller was to look."""
        well, activity = await asyncio.gather(health(self._tools, profile, engine.url or ""), self._activity(engine))
        now, ours = self._tools.clock.monotonic(), self._held(engine)
        figures, gpu = self._figures(engine.profile), self._gpu_of(engine, now)
        answers = _answers(figures, now)
        told = EngineFigures() if figures is None or answers is None else figures
        found = EngineSignals(
            at=now,
            held=ours.requests - ours.held_up,
            relayed_at=ours.relayed_at,
            health=well,
            answers=answers,
            running=told.running,
            waiting=told.waiting,
            deferred=told.deferred,
            kv_used=told.kv_used,
            progress=told.progress,
            prompt_progress=told.prompt_progress,
            asleep=told.asleep,
            queue_silent_s=_queue_silent_s(figures, well, now),
            lag_s=lag_s,
        )
        if activity is not None:
            found = replace(
                found,
                cpu_s=activity.cpu_s,
                processes=activity.processes,
                stopped=len(activity.stopped),
                stopped_names=tuple(sorted(set(activity.stopped))),
                in_kernel=activity.in_kernel,
                compilers=activity.compilers,
                read_bytes=activity.read_bytes,
            )
        return (
            found if gpu is None else replace(found, power_w=gpu.power_w, low_w=gpu.low_w, utilization=gpu.utilization)
        )

    async def _activity(self, engine: Engine) -> Activity | None:
        container = engine.container
        if container is None or container in self._reading:
            return None
        with suppress(TimeoutError, SparkdashError, OSError, RuntimeError):  # of a box out of files or threads, too
            async with asyncio.timeout(LOOK_S):
                pids = await self._tools.runtime.pids(container)
                return await in_thread(lambda: self._read(container, pids))
        return None

    def _read(self, container: str, pids: set[int]) -> Activity | None:
        self._reading.add(container)
        try:
            return activity.read_activity(pids)
        finally:
            self._reading.discard(container)

    def _gpu_of(self, engine: Engine, now: float) -> GpuFigures | None:
        """Return the GPU's figures for this engine; None while another one works, or for another box's GPU."""
        gpu = self._tools.gpu_figures()
        if gpu is None or now - gpu.looked_at > FRESH_S or not _is_here(engine):
            return None
        others = (other for other in self._tools.registry.engines.values() if other.profile != engine.profile)
        return None if any(self._works(other) for other in others) else gpu

    def _works(self, other: Engine) -> bool:
        if other.state in _LOADS or other.in_flight:
            return True
        figures = self._figures(other.profile)
        return figures is not None and figures.is_live and (figures.running or 0) > 0


def _answers(figures: EngineFigures | None, now: float) -> bool | None:
    """Whether figures came with this look; None for an engine that reports none, or only of finished requests."""
    if figures is None or not figures.is_live:
        return None
    if figures.answered_at is not None and now - figures.answered_at <= FRESH_S:
        return True
    return None if figures.unanswered_since is None else False


def _queue_silent_s(figures: EngineFigures | None, well: HealthAnswer, now: float) -> float | None:
    if figures is None or not figures.uses_queue or figures.unanswered_since is None or well is not HealthAnswer.WELL:
        return None
    return now - figures.unanswered_since


def _is_here(engine: Engine) -> bool:
    return engine.container is not None or urlsplit(engine.url or "").hostname in _HERE
