"""Watch over running engines, so that a death is known before the next request meets it, and repair of stuck ones.

An engine is dead when its container has ended. It is also dead when it says so itself, when three looks in a row find
it broken, when it answers a request and the proof after it with nonsense, or when its work stands still: then it is
ended, unless it ends by itself in a moment.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from sparkdash.domain.engine import Engine, Evidence, EvidenceRequest, IncidentEnd, Liveness, LivenessState, RepairStep
from sparkdash.domain.event import Level
from sparkdash.domain.node import NodeStatus
from sparkdash.domain.profile import OnStuck, Profile
from sparkdash.errors import BadAnswerError, EngineDeadError, EngineError, HostError, SparkdashError, UpstreamError
from sparkdash.host.kernel_lines import advice
from sparkdash.log import LOG
from sparkdash.supervisor import engine_end
from sparkdash.supervisor.decide.judge import EngineSignals, LivenessJudge, LivenessVerdict, Recovery, RecoveryOutlook
from sparkdash.supervisor.decide.moves import STUCK, EngineDied, EngineHeld, EngineRecovered, Move
from sparkdash.supervisor.engine_end import RECENT_S, TAIL, crash_error, gather_evidence, lost_error, wait_for_end
from sparkdash.supervisor.incidents import (
    LEFT,
    MOVED,
    RECOVERED,
    RELAPSED,
    Incidents,
    ended_words,
    only_told,
    stuck_notice,
    stuck_words,
)
from sparkdash.supervisor.probe import PROOF_S, unreachable, work_fault
from sparkdash.supervisor.state.clock import bounded
from sparkdash.supervisor.swap.kept_kv import KeptKv, keeps_conversations
from sparkdash.supervisor.swap.stopping import measure_held_memory, report_leftovers
from sparkdash.supervisor.tools import Tools


@dataclass(slots=True)
class WatchedEngine:
    """An incarnation of an engine under watch."""

    profile: Profile
    engine: Engine
    look: asyncio.Event = field(default_factory=asyncio.Event)
    used: asyncio.Event = field(default_factory=asyncio.Event)
    given_up: asyncio.Future[EngineError] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    """Done, with the reason, once the engine is given up though it has not ended."""
    proof: asyncio.Task[str | None] | None = None
    """Short generation that shows whether the engine works; shared by all who ask meanwhile."""
    task: asyncio.Task[EngineError] = field(init=False)
    looking: list[asyncio.Task[None]] = field(default_factory=list)
    """Tasks that look at the engine while it is used; an attached server is also probed all the time."""
    ends_itself: bool = False
    grace_s: float = 0.0
    """Time that the engine has to end by itself once it was given up."""

    def stop_looking(self) -> None:
        for task in self.looking:
            task.cancel()

    def give_up(self, error: EngineError, *, ends_itself: bool = False, grace_s: float = 0.0) -> None:
        """Give the engine up: it is ended, unless it ends by itself in a moment. Only the first reason counts."""
        if not self.given_up.done():
            self.ends_itself = ends_itself
            self.grace_s = grace_s
            self.given_up.set_result(error)


STEP_EVERY_S = 5.0
LOOK_S = 10.0
LOOKS_KEPT = 24
"""Looks that go into the evidence: two minutes."""
GRACE_S = 10.0
"""Longest time that a stuck engine has to end by itself: one that is killed at once leaves shared memory behind."""
RELAPSE_S = 600.0
"""An engine that is stuck again within this time of its recovery is ended without another try."""


class Repair:
    """Repair of one incarnation; `run` until cancelled, or until the engine is given up."""

    def __init__(
        self, tools: Tools, watched: WatchedEngine, incidents: Incidents, tell: Callable[[Move], None]
    ) -> None:
        self._tools = tools
        self._watched = watched
        self._incidents = incidents
        self._tell = tell
        self._name = watched.profile.name
        ready_at, now = watched.engine.ready_at, tools.clock.now()
        age_s = 0.0 if ready_at is None else now - ready_at
        self._judge = LivenessJudge(tools.clock.monotonic() - age_s, tools.thresholds)
        self._looks: deque[EngineSignals] = deque(maxlen=LOOKS_KEPT)
        self._keeping: asyncio.Task[None] | None = None
        self._recovered_at: float | None = None
        self._left = False
        """Whether all requests left since the engine was last seen stuck: clients that retry begin no new incident."""

    async def run(self) -> None:
        """Look while the engine has requests; repair it when it is stuck."""
        try:
            while not self._watched.given_up.done():
                if not self._watched.used.is_set():
                    self._left = True
                    self._show(None)
                    await self._watched.used.wait()
                due = self._now() + STEP_EVERY_S
                await self._tools.clock.sleep(STEP_EVERY_S)
                if self._watched.used.is_set() and (look := await self._look(lag_s=self._now() - due)):
                    await self._judged(self._judge.see(look))
        finally:
            if self._keeping is not None:
                self._keeping.cancel()

    async def _look(self, *, lag_s: float = 0.0) -> EngineSignals | None:
        assert self._tools.look is not None  # noqa: S101 - without it nobody runs this
        try:
            looking = self._tools.look(self._watched.profile, self._watched.engine, max(lag_s, 0.0))
            look = await bounded(looking, self._tools.clock, LOOK_S)
        except SparkdashError as error:
            LOG.warning("an engine could not be looked at", profile=self._name, why=error.message)
        except Exception:  # a bug in the repair must not end an engine that serves
            LOG.exception("a look at an engine failed", profile=self._name)
        else:
            if look is not None:
                self._looks.append(look)
            return look
        return None

    async def _judged(self, verdict: LivenessVerdict | None) -> None:
        if verdict is None:
            self._show(None)
            return
        if verdict.state is not LivenessState.STUCK:
            self._incidents.end(self._name, *((IncidentEnd.TOLD, LEFT) if self._left else _MOVED))
            self._show(verdict)
        elif self._only_told():
            self._left = False
            if self._incidents.open(self._name) is None:
                self._begin(verdict, RepairStep.WATCH)
                self._notice(Level.ERROR, STUCK, only_told(self._name, verdict.why, ours=self._is_ours))
                if self._is_ours:
                    self._keeping = asyncio.create_task(self._keep(verdict), name=f"evidence {self._name}")
            self._show(verdict, RepairStep.WATCH)
        else:
            await self._repair(verdict)

    @property
    def _is_ours(self) -> bool:
        return self._watched.engine.container is not None

    def _only_told(self) -> bool:
        profile = self._tools.catalog.profiles.get(self._name, self._watched.profile)
        return not self._is_ours or profile.on_stuck is OnStuck.TELL

    async def _repair(self, verdict: LivenessVerdict) -> None:
        self._begin(verdict, RepairStep.EVIDENCE)
        self._show(verdict, RepairStep.EVIDENCE)
        self._notice(Level.ERROR, STUCK, stuck_notice(self._name, verdict.why))
        taken = await self._evidence(verdict)
        if taken is not None and taken.problem:
            self._notice(Level.WARNING, "evidence_incomplete", taken.problem)
        folder = taken.folder if taken else None
        look = await self._look()
        again = self._judge.see(look) if look else verdict
        if again is not None and again.state is not LivenessState.STUCK:
            self._incidents.end(self._name, *_MOVED)
            self._show(again)
            return
        self._incidents.step(self._name, RepairStep.CANCEL, folder)
        self._show(verdict, RepairStep.CANCEL)
        relapsed = self._recovered_at is not None and self._now() - self._recovered_at < RELAPSE_S
        self._tell(EngineHeld(self._name, EngineError(stuck_words(self._name, verdict.why), code=STUCK)))
        why_not = RELAPSED if relapsed else await self._why_not_recovered(look)
        if why_not is None:
            self._recovered()
        else:
            await self._end_engine(verdict, why_not, folder)

    def _recovered(self) -> None:
        self._judge.forget()
        self._recovered_at = self._now()
        self._tell(EngineRecovered(self._name))
        self._incidents.end(self._name, IncidentEnd.RECOVERED, RECOVERED)
        self._show(None)

    async def _end_engine(self, verdict: LivenessVerdict, why_not: str, folder: str | None) -> None:
        self._incidents.step(self._name, RepairStep.END)
        self._show(verdict, RepairStep.END)
        kernel = await engine_end.standstill_reason(self._tools, self._name, self._wall(verdict.moved_at))
        text = ended_words(self._name, verdict.why, why_not)
        error = EngineError(
            f"{text} {engine_end.sentence(kernel)}." if kernel else text,
            code=STUCK,
            hint=advice(kernel) if kernel else None,
            evidence=folder,
        )
        self._watched.give_up(error, grace_s=min(self._tools.settings.stop_grace_s, GRACE_S))

    async def _why_not_recovered(self, look: EngineSignals | None) -> str | None:
        """Watch the engine after its requests were cancelled; None once it works again."""
        clock = self._tools.clock
        recovery = Recovery(self._now(), self._tools.thresholds)
        while True:
            outlook = recovery.see(look) if look else recovery.blind(self._now())
            if outlook is RecoveryOutlook.HOPELESS:
                return recovery.why
            if outlook is RecoveryOutlook.TRY:
                url = self._watched.engine.url or ""
                if await work_fault(self._tools, self._watched.profile, url, limit_s=PROOF_S) is None:
                    return None
                recovery.tried(self._now())
            await clock.sleep(STEP_EVERY_S)
            look = await self._look()

    async def _keep(self, verdict: LivenessVerdict) -> None:
        """Take evidence of an engine that is only reported: a person decides what follows."""
        taken = await self._evidence(verdict)
        if taken is not None and taken.folder:
            self._incidents.step(self._name, RepairStep.WATCH, taken.folder)

    async def _evidence(self, verdict: LivenessVerdict) -> Evidence | None:
        engine = self._watched.engine
        request = EvidenceRequest(
            profile=self._name,
            kind=engine.kind,
            reason=verdict.why,
            container=engine.container,
            fingerprint=engine.fingerprint,
            version=engine.version,
            started_at=engine.ready_at,
            looks=[_plain(each) for each in self._looks],
        )
        return await gather_evidence(self._tools, request)

    # What is told.

    def _begin(self, verdict: LivenessVerdict, step: RepairStep) -> None:
        if self._incidents.open(self._name) is None:
            began = self._wall(verdict.moved_at)
            self._incidents.begin(self._name, self._watched.engine.fingerprint, began, verdict.why, step)
        else:  # `on_stuck` was edited since it was told
            self._incidents.step(self._name, step)

    def _show(self, verdict: LivenessVerdict | None, step: RepairStep | None = None) -> None:
        registry = self._tools.registry
        engine = registry.engines.get(self._name)
        if verdict is None or engine is None:
            registry.lively(self._name, None)
            return
        before, since = engine.liveness, self._wall(verdict.moved_at)
        same = before is not None and (before.state, before.step) == (verdict.state, step)
        if before is not None and same and verdict.state not in _STANDS:
            return  # an engine that moves again is reported once, not at each look
        step_since = None if step is None else before.step_since if before and same else self._tools.clock.now()
        registry.lively(
            self._name, Liveness(state=verdict.state, why=verdict.why, since=since, step=step, step_since=step_since)
        )

    def _notice(self, level: Level, code: str, text: str) -> None:
        self._tools.registry.notice(level, code, text, self._name)

    # Times.

    def _now(self) -> float:
        return self._tools.clock.monotonic()

    def _wall(self, at: float) -> float:
        return self._tools.clock.now() - (self._now() - at)


_MOVED = IncidentEnd.MOVED, MOVED
_STANDS = frozenset({LivenessState.SILENT, LivenessState.STUCK})


def _plain(look: EngineSignals) -> dict[str, Any]:
    """A look as JSON has it: only what is known."""
    facts = asdict(look) | {"health": look.health.name.lower() if look.health else None}
    return {name: value for name, value in facts.items() if value not in (None, (), "")}


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
        if keeps_conversations(self._tools, profile, engine.nodes) and self._tools.adapter(profile).writes_kv:
            bounding = KeptKv(self._tools, profile).bound_blocks()
            watched.looking.append(group.create_task(bounding, name=f"bound {profile.name}"))
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
            model = watched.engine.model_id
            proof = work_fault(self._tools, profile, url, limit_s=PROOF_S, model=model, late_counts=False)
            watched.proof = asyncio.create_task(proof, name="proof")
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
                why = await unreachable(self._tools, watched.profile, watched.engine.url or "", late_counts=False)
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
                self._tools.registry.gone(profile.name, held)  # from now on the next start waits for it
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
            late_counts = not watched.used.is_set()  # a server at work may be slow to answer
            why = await unreachable(self._tools, profile, watched.engine.url or "", late_counts=late_counts)
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
