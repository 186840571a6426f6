"""Residency: what the scheduler records when an engine comes up, dies, gets stuck, recovers or leaves.

Owns: the residents of the records. Must not decide what follows: `decisions` does.

Pure.
"""

from __future__ import annotations

from sparkdash.domain.node import LOCAL
from sparkdash.errors import SparkdashError
from sparkdash.supervisor.scheduling import refusals
from sparkdash.supervisor.scheduling.breaker import Breaker
from sparkdash.supervisor.scheduling.decisions import Decisions
from sparkdash.supervisor.scheduling.moves import (
    STUCK,
    Effect,
    EngineDied,
    EngineHeld,
    EngineRecovered,
    Evicted,
    WontStop,
)
from sparkdash.supervisor.scheduling.offers import Offers
from sparkdash.supervisor.scheduling.queue import RequestQueue
from sparkdash.supervisor.scheduling.records import Resident, SchedulerRecords


class Residency:
    """Applies moves about resident engines to the scheduler's records."""

    def __init__(
        self, records: SchedulerRecords, queue: RequestQueue, offers: Offers, breaker: Breaker, decisions: Decisions
    ) -> None:
        self._records = records
        self._queue = queue
        self._offers = offers
        self._breaker = breaker
        self._decisions = decisions

    def take(self, move: EngineDied | EngineHeld | EngineRecovered | Evicted | WontStop, now: float) -> list[Effect]:
        """Record a move about an engine that is there, which came at `now`."""
        match move:
            case EngineDied():
                return self._died(move, now)
            case EngineHeld():
                return self._held(move)
            case EngineRecovered(profile=profile):
                self._recovered(profile)
            case Evicted(profile=profile):
                self._evicted(profile)
            case WontStop(profile=profile):
                self._wont_stop(profile)
        return []

    def came_up(self, profile: str, fingerprint: str | None, now: float, nodes: tuple[str, ...]) -> None:
        """An engine of this profile is ready on these nodes; none for one that is not ours."""
        residents, nodes = self._records.residents, nodes or (LOCAL,)
        residents.pop(profile, None)
        residents[profile] = Resident(fingerprint, self._records.managed(profile), now, nodes)
        self._records.ran_on[profile] = nodes
        self._breaker.came_up(profile)

    def _died(self, move: EngineDied, now: float) -> list[Effect]:
        """Cut the engine's leases; refuse its waiting requests if it may not start now; restart it if it was stuck."""
        name, unwanted = move.profile, move.profile in self._records.leaving()
        resident = self._records.residents.pop(name, None)
        if resident is None:
            return []
        self._breaker.died(name, resident.fingerprint or "", move.error, now)
        effects = self._cut(name, move.error)
        self._records.stops.discard(name)
        if refusal := self._breaker.refusal(name, now):
            return (
                effects
                if self._records.coming(name)
                else [*effects, *self._decisions.refuse_requests_for(name, refusal)]
            )
        if move.error.code == STUCK and not unwanted:
            self._offers.repair(name)
        return effects

    def _held(self, move: EngineHeld) -> list[Effect]:
        """Have the stuck engine serve nobody until it recovers or is replaced. Its drain is over."""
        resident = self._records.residents.get(move.profile)
        if resident is None:
            return []
        resident.stuck = True
        return self._cut(move.profile, move.error)

    def _recovered(self, profile: str) -> None:
        """Let a recovered engine serve again."""
        if resident := self._records.residents.get(profile):
            resident.stuck = False

    def _wont_stop(self, profile: str) -> None:
        """Note that an engine was told to end and is still there."""
        if resident := self._records.residents.get(profile):
            resident.ready = False

    def _evicted(self, profile: str) -> None:
        """Remove an evicted engine; it may fall back if the swap that evicted it fails."""
        records = self._records
        resident = records.residents.pop(profile, None)
        records.stops.discard(profile)
        cause = next((swap.target for swap in records.swaps.values() if profile in swap.evict), None)
        if resident and resident.ready and cause is not None:
            self._offers.evicted(profile, cause)

    def _cut(self, profile: str, error: SparkdashError) -> list[Effect]:
        """Cut the engine's leases; for good where a person stops it, as a returning request would start it again."""
        stop = self._records.swaps.get(None)
        is_stopped = profile in self._records.stops or (stop is not None and profile in stop.evict)
        return self._queue.cut([profile], refusals.cut_short(error) if is_stopped else error)
