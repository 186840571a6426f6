"""Repair: what is done about an engine that holds requests and makes no progress.

Steps, each published with its time: the engine is told to be stuck; evidence is taken; its requests are cancelled, and
it is watched whether that frees it; if not, it is given up. Of an engine with `on_stuck: tell`, or that is not ours, it
is only told. Nobody looks at an engine without requests.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import structlog

from sparkdash.domain.engine import Engine, Evidence, EvidenceRequest, IncidentEnd, Liveness, LivenessState, RepairStep
from sparkdash.domain.event import Level
from sparkdash.domain.profile import OnStuck, Profile
from sparkdash.errors import EngineError, SparkdashError
from sparkdash.supervisor import engine_end
from sparkdash.supervisor.decide.judge import EngineSignals, LivenessJudge, LivenessVerdict, Recovery, RecoveryOutlook
from sparkdash.supervisor.decide.moves import STUCK, EngineHeld, EngineRecovered, Move
from sparkdash.supervisor.engine_end import gather_evidence
from sparkdash.supervisor.probe import PROOF_S, work_fault
from sparkdash.supervisor.repair.incidents import (
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
from sparkdash.supervisor.state.clock import bounded
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


LOG = structlog.get_logger("sparkdash.supervisor")
LOOK_EVERY_S = 5.0
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
        self._judge = LivenessJudge(self._monotonic(watched.engine.ready_at), tools.thresholds)
        self._looks: deque[EngineSignals] = deque(maxlen=LOOKS_KEPT)
        self._keeping: asyncio.Task[None] | None = None
        self._recovered_at: float | None = None
        self._left = False
        """Whether all requests left since the engine was last seen stuck: clients that retry begin no new incident."""

    async def run(self) -> None:
        """Look while the engine has requests; repair it when it is stuck."""
        try:
            while not self._watched.given_up.done():
                await self._until_used()
                due = self._now() + LOOK_EVERY_S
                await self._tools.clock.sleep(LOOK_EVERY_S)
                if self._watched.used.is_set() and (look := await self._look(lag_s=self._now() - due)):
                    await self._judged(self._judge.see(look))
        finally:
            if self._keeping is not None:
                self._keeping.cancel()

    async def _until_used(self) -> None:
        if not self._watched.used.is_set():
            self._left = True
            self._show(None)
            await self._watched.used.wait()

    async def _look(self, *, lag_s: float = 0.0) -> EngineSignals | None:
        assert self._tools.look is not None  # noqa: S101 - without it nobody runs this
        try:
            looking = self._tools.look(self._watched.profile, self._watched.engine, max(lag_s, 0.0))
            look = await bounded(looking, self._tools.clock, LOOK_S)
        except SparkdashError as error:
            LOG.warning("an engine could not be looked at", profile=self._name, why=error.message)
            return None
        except Exception:  # a bug in the repair must not end an engine that serves
            LOG.exception("a look at an engine failed", profile=self._name)
            return None
        if look is not None:
            self._looks.append(look)
        return look

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
        folder = await self._take_whole_evidence(verdict)
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

    async def _take_whole_evidence(self, verdict: LivenessVerdict) -> str | None:
        taken = await self._evidence(verdict)
        if taken is not None and taken.problem:
            self._notice(Level.WARNING, "evidence_incomplete", taken.problem)
        return taken.folder if taken else None

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
            f"{text} {kernel.words}." if kernel else text,
            code=STUCK,
            hint=kernel.advice if kernel else None,
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
            await clock.sleep(LOOK_EVERY_S)
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

    def _monotonic(self, at: float | None) -> float:
        now = self._tools.clock.monotonic()
        return now if at is None else now - (self._tools.clock.now() - at)


_MOVED = IncidentEnd.MOVED, MOVED
_STANDS = frozenset({LivenessState.SILENT, LivenessState.STUCK})


def _plain(look: EngineSignals) -> dict[str, Any]:
    """A look as JSON has it: only what is known."""
    facts = asdict(look) | {"health": look.health.name.lower() if look.health else None}
    return {name: value for name, value in facts.items() if value not in (None, (), "")}
