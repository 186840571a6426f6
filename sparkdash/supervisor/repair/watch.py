"""Watch over running engines, so that a death is known before the next request meets it.

An engine is dead when its container has ended. It is also dead when it says so itself, when three looks in a row find
it broken, when it answers a request and the proof after it with nonsense, or when its work stands still: then it is
ended, unless it ends by itself in a moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from sparkdash.domain.engine import Engine
from sparkdash.domain.event import Level
from sparkdash.domain.node import NodeStatus
from sparkdash.domain.profile import Profile
from sparkdash.errors import BadAnswerError, EngineDeadError, EngineError, HostError, SparkdashError, UpstreamError
from sparkdash.supervisor.decide.moves import EngineDied, Move
from sparkdash.supervisor.engine_end import RECENT_S, TAIL, crash_error, lost_error, wait_for_end
from sparkdash.supervisor.probe import sickness, speaks_nonsense, unreachable
from sparkdash.supervisor.repair.incidents import Incidents
from sparkdash.supervisor.repair.repair import Repair, WatchedEngine
from sparkdash.supervisor.swap.stopping import measure_held_memory, report_leftovers
from sparkdash.supervisor.tools import Tools

PROBE_EVERY_S = 5.0
"""Seconds between two probes of an attached server."""
LOOK_EVERY_S = 10.0
"""Seconds between two looks at an engine of this box while it has requests."""
MISSES = 3
"""Failed looks in a row after which an engine counts as gone."""
CONFIRM_S = 5.0
"""The container of an engine that reports itself dead ends a second or two later."""
CLEARED_S = 30.0
"""Seconds to wait for last words and clean-up of an ended engine: the runtime may hang."""


class EngineWatch:
    """Watch over running engines; reports `EngineDied` once for each that ends by itself or has to be given up."""

    def __init__(self, tools: Tools, incidents: Incidents, tell: Callable[[Move], None]) -> None:
        self._tools = tools
        self._incidents = incidents
        self._tell = tell
        self._watched: dict[str, WatchedEngine] = {}
        self._deaths: dict[str, tuple[Engine, EngineError]] = {}
        """Last death of each profile, for requests that learn of it late."""
        self._ended: set[str] = set()
        """Containers whose end is seen and not told yet: a slow runtime takes its time to clear away."""

    def begin(self, group: asyncio.TaskGroup, profile: Profile, engine: Engine) -> None:
        self.end(profile.name)
        self._deaths.pop(profile.name, None)
        watched = self._watched[profile.name] = WatchedEngine(profile, engine)
        work = self._container(watched, engine.container) if engine.container else self._remote(watched)
        watched.task = group.create_task(work, name=f"watch {profile.name}")
        if engine.container:
            watched.looking.append(group.create_task(self._look(watched), name=f"look at {profile.name}"))
        if self._tools.look is not None:
            repair = Repair(self._tools, watched, self._incidents, self._tell)
            watched.looking.append(group.create_task(repair.run(), name=f"judge {profile.name}"))

    def end(self, name: str) -> None:
        if watched := self._watched.pop(name, None):
            watched.task.cancel()
            watched.stop_looking()

    def used(self, name: str, *, now: bool) -> None:
        """Set whether the engine has requests: it is looked at only then."""
        if watched := self._watched.get(name):
            if now:
                watched.used.set()
            else:
                watched.used.clear()

    async def confirm(self, profile: Profile, engine: Engine, trouble: UpstreamError) -> EngineError | None:
        """Return how the engine that gave `trouble` died, or which of its nodes is silent; None when neither."""
        watched = self._watched.get(profile.name)
        if watched is None or watched.engine.ready_at != engine.ready_at:
            return self._how_it_died(engine)
        is_reply = isinstance(trouble, EngineDeadError | BadAnswerError)
        if not is_reply and (silent := self._silent_node(profile, engine)):
            return self._how_it_died(engine) or silent
        if not await self._is_broken(watched, trouble):
            return None
        await self._look_now(watched, engine)
        # a link's end closes the connection before its node is known to be silent
        return self._how_it_died(engine) or (None if is_reply else self._silent_node(profile, engine))

    async def _look_now(self, watched: WatchedEngine, engine: Engine) -> None:
        """Have the engine looked at now, and wait a moment for its end."""
        watched.look.set()
        if engine.container or watched.given_up.done():
            await asyncio.wait({watched.task}, timeout=CONFIRM_S)
            if engine.container in self._ended or watched.given_up.done():
                await asyncio.wait({watched.task}, timeout=CLEARED_S)

    def _silent_node(self, profile: Profile, engine: Engine) -> EngineError | None:
        states = self._tools.nodes.states
        silent = (states[node] for node in engine.nodes if node in states)
        state = next((state for state in silent if state.status is not NodeStatus.REACHABLE), None)
        if state is None:
            return None
        why = state.reason or f"{state.name} does not answer."
        hint = f"`sparkdash doctor --node {state.name}` tests the link."
        return EngineError(f"{profile.name} cannot be reached. {why}", code="node_unreachable", hint=hint)

    def _how_it_died(self, engine: Engine) -> EngineError | None:
        died, error = self._deaths.get(engine.profile, (None, None))
        return error if died is not None and died.ready_at == engine.ready_at else None

    async def _is_broken(self, watched: WatchedEngine, trouble: UpstreamError) -> bool:
        profile, url = watched.profile, watched.engine.url or ""
        if isinstance(trouble, EngineDeadError):
            why_dead = EngineError(f"{profile.name} died: {trouble.message.rstrip('.')}.", code="engine_crash")
            watched.give_up(why_dead, ends_itself=True)
            return True
        if not isinstance(trouble, BadAnswerError):
            return await unreachable(self._tools, profile, url) is not None
        if watched.proof is None or watched.proof.done():
            watched.proof = asyncio.create_task(speaks_nonsense(self._tools, profile, watched.engine), name="proof")
        why = await asyncio.shield(watched.proof)
        if why is not None:
            watched.give_up(_useless(watched, trouble, why))
        return why is not None

    async def _look(self, watched: WatchedEngine) -> None:
        """Give the engine up when three looks in a row find it broken; a slow answer is no fault."""
        misses = 0
        while misses < MISSES:
            await watched.used.wait()
            await self._tools.clock.sleep(LOOK_EVERY_S)
            if watched.used.is_set():
                why = await sickness(self._tools, watched.profile, watched.engine.url or "")
                misses = misses + 1 if why else 0
        name = watched.profile.name
        watched.give_up(EngineError(f"{name} stopped working and was ended: {why}.", code="engine_unhealthy"))

    async def _container(self, watched: WatchedEngine, container: str) -> EngineError:
        profile = watched.profile
        ended, code = await self._until_over(watched, container)
        if ended and code is None:
            # the memory guard killed it and the runtime hangs: waiting requests get the reason now
            error = self._died(watched, await self._why_it_ended(profile, container, code))
            await self._clear_away(profile, container)
            return error
        self._ended.add(container)
        try:
            await self._tools.logbook.close(profile.name)
            error = await self._why_it_ended(profile, container, code)
            if not (ended or (watched.ends_itself and self._log_explains(profile, error))):
                error = self._with_last_words(watched)
            if not ended and (held := await measure_held_memory(self._tools, watched.engine)) is not None:
                self._tools.registry.gone(
                    profile.name, held
                )  # waited for from now on, so that the next start waits for it
            await self._clear_away(profile, container, watched.grace_s)
        finally:
            self._ended.discard(container)
        return self._died(watched, error)

    async def _why_it_ended(self, profile: Profile, container: str, code: int | None) -> EngineError:
        since = self._tools.clock.now() - RECENT_S
        return await crash_error(self._tools, profile, container, code, "died", since)

    def _log_explains(self, profile: Profile, error: EngineError) -> bool:
        """Whether the error names a reason that the log of the engine, or of the kernel, gave."""
        unexplained = self._tools.adapter(profile).classify((), None)
        return error.code != unexplained.code or unexplained.message not in error.message

    async def _until_over(self, watched: WatchedEngine, container: str) -> tuple[bool, int | None]:
        """Wait until the engine ended, or was given up; return whether it ended, and its exit code."""
        ending = asyncio.ensure_future(wait_for_end(self._tools, container))
        try:
            either: set[asyncio.Future[Any]] = {ending, watched.given_up}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if watched.ends_itself:
                await asyncio.wait({ending}, timeout=CONFIRM_S)
            if not ending.done():
                return False, None
            try:
                return True, ending.result()
            except HostError as lost:
                watched.give_up(lost_error(self._tools, watched.profile, lost, "was ended"))
                return False, None
        finally:
            ending.cancel()

    def _with_last_words(self, watched: WatchedEngine) -> EngineError:
        why, adapter = watched.given_up.result(), self._tools.adapter(watched.profile)
        # classify masks what looks like a token or a key
        why.log_tail = adapter.classify(self._tools.logbook.tail(watched.profile.name, TAIL), None).log_tail
        return why

    async def _clear_away(self, profile: Profile, container: str, grace_s: float = 0.0) -> None:
        registry = self._tools.registry
        await self._tools.logbook.close(profile.name)
        try:
            report_leftovers(registry, profile.name, await self._tools.runtime.stop(container, grace_s))
        except SparkdashError as error:  # the next start of this profile replaces it
            unknown = "whether it left processes behind is not known"
            text = f"{container} has ended and could not be cleared away; {unknown}. {error.text()}"
            registry.notice(Level.WARNING, error.code, text, profile.name)

    async def _remote(self, watched: WatchedEngine) -> EngineError:
        profile, misses = watched.profile, 0
        why: str | None = None
        while misses < MISSES and not watched.given_up.done():
            await self._pause(watched)
            why = await unreachable(self._tools, profile, watched.engine.url or "")
            misses = misses + 1 if why else 0
        if watched.given_up.done():
            return self._died(watched, watched.given_up.result())
        return self._died(watched, EngineError(f"{profile.name} no longer answers: {why}.", code="engine_unreachable"))

    async def _pause(self, watched: WatchedEngine) -> None:
        sleep = asyncio.ensure_future(self._tools.clock.sleep(PROBE_EVERY_S))
        wake = asyncio.ensure_future(watched.look.wait())
        try:
            any_of: set[asyncio.Future[Any]] = {sleep, wake, watched.given_up}
            await asyncio.wait(any_of, return_when=asyncio.FIRST_COMPLETED)
        finally:
            watched.look.clear()
            sleep.cancel()
            wake.cancel()

    def _died(self, watched: WatchedEngine, error: EngineError) -> EngineError:
        name = watched.profile.name
        if self._watched.get(name) is watched:
            del self._watched[name]
        watched.stop_looking()
        self._deaths[name] = watched.engine, error
        self._tell(EngineDied(name, error))
        return error


def _useless(watched: WatchedEngine, trouble: BadAnswerError, why: str) -> EngineError:
    name = watched.profile.name
    text = f"{trouble.message} A short generation failed too: {why}."
    if watched.engine.container:
        return EngineError(text, code="bad_answer", hint=f"Its log may tell: `sparkdash logs {name}`.")
    # a server that is not ours recovers by itself or its owner: no reason to park the profile
    return EngineError(text, code="engine_unreachable", hint=f"Look at what answers at {watched.engine.url}.")
