"""Short questions to an engine: does it answer, does it work; and all signals of one moment, for the judge.

No part of a look is waited for longer than LOOK_S, whatever hangs. A part that is late is None.
"""

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from sparkdash.domain.engine import Engine
from sparkdash.domain.metric import EngineFigures, GpuFigures
from sparkdash.domain.profile import Profile, ServerSpec
from sparkdash.domain.request import ServerRoute, Task
from sparkdash.engines import model_list
from sparkdash.engines.generic.known_servers import described_server
from sparkdash.engines.generic.trial import Trial, trial_of
from sparkdash.engines.probes import Probes
from sparkdash.errors import EngineError, SparkdashError, UpstreamError
from sparkdash.host.processes import activity
from sparkdash.host.processes.activity import Activity
from sparkdash.host.thread import in_thread
from sparkdash.supervisor.decide.judge import EngineSignals, HealthAnswer
from sparkdash.supervisor.tools import Tools
from sparkdash.upstream import SmallResponse, engine_error_text

LIST_S = 2.0
_NOT_ITS_WORK = frozenset({400, 404, 405, 501})
"""Statuses of a pooling engine for a route that its model is not for."""
SHOWN = 8


async def try_engine(tools: Tools, profile: Profile, url: str, limit_s: float, model: str | None = None) -> str | None:
    """Have the engine do a small piece of its work; return the text of its greedy chat, None where it has none.

    Raises UpstreamError, and EngineError `model_unclear`.
    """
    adapter = tools.adapter(profile)
    server, tasks = described_server(profile), adapter.tasks(profile, tools.needs.target(profile))
    name = model or await served_model(tools, profile, url) or adapter.served_names(profile)[0]
    if server is not None:
        if trial := trial_of(server, name):
            _judge(trial, await _send(tools, url, trial, limit_s))
    elif tasks is not None and Task.GENERATE not in tasks:  # an engine of vectors or ranks refuses chats
        await _try_pooling(tools, url, name, limit_s)
    elif adapter.probes.chat is not None:
        return await tools.upstream.generate(url + adapter.probes.chat, name, timeout_s=limit_s)
    return None


async def _try_pooling(tools: Tools, url: str, model: str, limit_s: float) -> None:
    """Ask for a vector, or a ranking if it makes none; a model that does neither classifies, and its health counts."""
    for route in (ServerRoute.EMBEDDINGS, ServerRoute.RERANK):
        trial = trial_of(ServerSpec(routes=(route,)), model)
        assert trial is not None  # noqa: S101 - both routes have one
        reply = await _send(tools, url, trial, limit_s)
        if reply.status not in _NOT_ITS_WORK:
            _judge(trial, reply)
            return


async def served_model(tools: Tools, profile: Profile, url: str) -> str | None:
    """Return the name that a generic server lists for its model; None where that is known. Raises EngineError."""
    if described_server(profile) is None or profile.model_id is not None:
        return None
    path = tools.adapter(profile).probes.models
    if path is None:
        return None
    try:
        reply = await tools.upstream.get(url + path, timeout_s=LIST_S)
    except UpstreamError:
        return None
    listed = model_list.parse_model_list(reply.body if reply.status == 200 else b"")
    if name := model_list.model_of(profile, listed):
        return name
    shown = ", ".join(listed.models[:SHOWN])
    raise EngineError(
        f"The server of {profile.name} lists {len(listed.models)} models: {shown}.",
        code="model_unclear",
        hint="Write one of them as `model_id` in the profile.",
    )


async def _send(tools: Tools, url: str, trial: Trial, limit_s: float) -> SmallResponse:
    return await tools.upstream.post(url + trial.path, trial.body, content_type=trial.content_type, timeout_s=limit_s)


def _judge(trial: Trial, reply: SmallResponse) -> None:
    what = f"the trial of {trial.route.value} at {trial.path}"
    if reply.status != 200:
        text = f"{what} answered {reply.status}: {engine_error_text(reply.body)}"
        raise UpstreamError(text, code="engine_refused")
    if fault := trial.fault(reply.content_type, reply.body):
        raise UpstreamError(f"{what} failed, as {fault}", code="engine_mute")


PROBE_S = 2.0
PROOF_S = 20.0
"""Limit of the short generation that shows whether an engine works after a bad answer."""
UNLISTED = frozenset({404, 405, 501})
"""Statuses of a server that is there without a list of models; only attached servers are probed by that list."""


async def unreachable(tools: Tools, profile: Profile, url: str, *, late_counts: bool = True) -> str | None:
    """Probe the engine's health; return what is wrong with the answer, or None when it is well.

    Without `late_counts` a late answer is no fault: an engine under load is slow.
    """
    try:
        return await _wrong_with(tools, profile, url)
    except UpstreamError as error:
        return _words(error, late_counts=late_counts)


def _words(error: EngineError | UpstreamError, *, late_counts: bool) -> str | None:
    return error.message.rstrip(".") if late_counts or error.code != "engine_timeout" else None


async def health(tools: Tools, profile: Profile, url: str) -> HealthAnswer:
    try:
        return HealthAnswer.BROKEN if await _wrong_with(tools, profile, url) else HealthAnswer.WELL
    except UpstreamError as error:
        return HealthAnswer.SILENT if error.code == "engine_timeout" else HealthAnswer.BROKEN


async def _wrong_with(tools: Tools, profile: Profile, url: str) -> str | None:
    adapter = tools.adapter(profile)
    probes = adapter.probes
    reply = await tools.upstream.get(url + probes.alive, timeout_s=PROBE_S)
    if not adapter.managed and reply.status in UNLISTED:
        return None
    if fault := health_fault(probes, reply):
        return fault
    if probes.alive == probes.models and not reply.body.lstrip().startswith((b"{", b"[")):
        return f"{probes.alive} answered without a list of models"
    return None


def health_fault(probes: Probes, reply: SmallResponse) -> str | None:
    """Why this answer of the health path does not show a server that is up; None when it does."""
    if reply.status != 200:
        return f"{probes.alive} answered {reply.status}"
    if not probes.alive_has:
        return None
    try:
        told: Any = json.loads(reply.body)
    except (ValueError, RecursionError):
        return f"{probes.alive} answered no JSON"
    found = told if isinstance(told, dict) else {}
    wrong = next((key for key, value in probes.alive_has.items() if found.get(key) != value), None)
    return None if wrong is None else f"{probes.alive} answered {wrong}: {found.get(wrong)}"


async def version_of(tools: Tools, profile: Profile, url: str) -> str | None:
    """Return the engine's own version, where it tells one."""
    path = tools.adapter(profile).probes.version
    if path is None:
        return None
    with suppress(UpstreamError, ValueError, RecursionError, KeyError, TypeError):
        reply = await tools.upstream.get(url + path, timeout_s=PROBE_S)
        return str(json.loads(reply.body)["version"])
    return None


async def work_fault(
    tools: Tools, profile: Profile, url: str, *, limit_s: float, model: str | None = None, late_counts: bool = True
) -> str | None:
    """Ask for a small piece of work; return why the engine did not do it, or None. `late_counts`: or not in time."""
    try:
        await try_engine(tools, profile, url, limit_s, model)
    except (UpstreamError, EngineError) as error:
        return _words(error, late_counts=late_counts)
    return None


LOOK_S = 2.5
"""Limit of everything that a look waits for; the probe of the health route has a shorter one of its own."""
FRESH_S = 15.0
"""Age up to which figures are of this moment: telemetry asks every 5 s, and an answer may take 3 s."""
_HERE = frozenset({"127.0.0.1", "localhost", "::1"})


class HeldRequests(NamedTuple):
    """Requests of ours that an engine holds at one moment."""

    requests: int
    held_up: int
    relayed_at: float | None
    """Monotonic time of the last byte of any answer, of those that are over too; None before the first."""


class SignalReader:
    """Looks at engines. `held` counts what an engine holds of ours."""

    def __init__(
        self, tools: Tools, held: Callable[[Engine], HeldRequests], figures: Callable[[str], EngineFigures | None]
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
        is_here = engine.container is not None or urlsplit(engine.url or "").hostname in _HERE
        if gpu is None or now - gpu.looked_at > FRESH_S or not is_here:
            return None
        others = (other for other in self._tools.registry.engines.values() if other.profile != engine.profile)
        return None if any(self._works(other) for other in others) else gpu

    def _works(self, other: Engine) -> bool:
        if other.state.is_coming or other.in_flight:
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
