"""The decisions: who is granted, who waits, what is swapped. Pure; DESIGN.md has the table and the reasons.

Owns the books of tickets, leases, residents and the swap under way. Must not know asyncio, clocks, containers.

Rule 1: one move in, a list of effects out; the books already say what the effects order.
Rule 2: at most one swap, and one begins only for a ticket, a person, or a fall back.
Rule 3: what a lease holds is not evicted. A swap drains first; `Evict` is ordered when the last lease has left.
Rule 4: the queue is in order of arrival. The oldest ticket whose engine does not run chooses the next swap, and
        nobody younger may take the engine that this swap evicts. Those who wait when a swap is done go together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from sparkdash.domain.swap import SwapCause
from sparkdash.errors import SparkdashError
from sparkdash.supervisor import fit, refusals
from sparkdash.supervisor.breaker import Breaker
from sparkdash.supervisor.moves import (
    Adopted,
    Arrive,
    BeginSwap,
    Cancel,
    CancelSwap,
    CatalogRead,
    Cut,
    DrainOver,
    Effect,
    EngineDied,
    Evict,
    Evicted,
    Grant,
    Known,
    Leave,
    Move,
    Refuse,
    Release,
    Stop,
    SwapCancelled,
    SwapDone,
    SwapFailed,
    Use,
    Wait,
    WontStop,
)
from sparkdash.supervisor.records import USE, Change, Resident, Stage, Ticket


class Scheduler:
    """Hand it moves; carry its effects out in their order."""

    def __init__(self, profiles: Mapping[str, Known], *, queue_limit: int) -> None:
        self.profiles = dict(profiles)
        self.queue: dict[str, Ticket] = {}
        self.leases: dict[str, str] = {}
        """Granted id -> profile."""
        self.residents: dict[str, Resident] = {}
        """In the order in which they became ready."""
        self.swap: Change | None = None
        self._limit = queue_limit
        self._places: dict[str, int] = {}
        self._stops: set[str] = set()
        self.breaker = Breaker()
        self._previous: str | None = None
        """Who was evicted for a swap that has not succeeded yet."""
        self._fallback: str | None = None

    def handle(self, move: Move) -> list[Effect]:
        """Take note of the move; what must be done now."""
        return [
            *self._take(move),
            *self._call_off(),
            *self._grant_hits(),
            *self._begin(),
            *self._evict(),
            *self._tell_places(),
        ]

    @property
    def stopping(self) -> bool:
        """Is something that a person wanted gone still to go?"""
        return bool(self._stops) or (
            self.swap is not None and (self.swap.target is None or self.swap.stage is Stage.CANCELLING)
        )

    def waiting_for(self, profile: str | None) -> int:
        """How many requests wait for this profile."""
        return sum(t.profile == profile for t in self.queue.values() if t.id != USE)

    def in_flight(self, profile: str) -> int:
        """How many leases are on this profile's engine."""
        return sum(held == profile for held in self.leases.values())

    def evictions(self, target: str) -> tuple[str, ...]:
        """Who would leave if `target` were to come now."""
        known = self.profiles.get(target)
        comer = fit.Occupant(target, managed=known is None or known.managed)
        return fit.evictions(comer, (fit.Occupant(name, r.managed) for name, r in self.residents.items()))

    def runs(self, profile: str) -> bool:
        """Is its engine ready, and here to stay?"""
        resident = self.residents.get(profile)
        return resident is not None and resident.ready and profile not in self._leaving()

    # What came in, one method a move.

    def _take(self, move: Move) -> list[Effect]:
        match move:
            case Arrive():
                return self._arrive(move)
            case Leave(id=id_):
                return self._leave(id_)
            case Use():
                return self._use(move)
            case Stop(profile=profile):
                return self._stop(profile)
            case Cancel():
                return self._cancel()
            case Release(profile=profile):
                self.breaker.release(profile)
            case CatalogRead(profiles=profiles):
                return self._catalog(profiles)
            case Adopted(profile=profile, ready=False):
                self.swap = Change(profile, (), SwapCause.ADOPT, move.fingerprint, Stage.GOING)
                return [BeginSwap(profile, (), SwapCause.ADOPT)]
            case Adopted(profile=profile, fingerprint=fingerprint):
                self._settle_in(profile, fingerprint)
            case EngineDied():
                return self._died(move)
            case DrainOver():
                return self._drain_over()
            case Evicted(profile=profile):
                self._evicted(profile)
            case WontStop(profile=profile):
                if profile in self.residents:
                    self.residents[profile].ready = False
            case SwapDone():
                return self._done()
            case SwapFailed():
                return self._failed(move)
            case SwapCancelled():
                self.swap = None
        return []

    def _arrive(self, move: Arrive) -> list[Effect]:
        profile = move.profile or self._whatever_runs()
        if profile is None:
            return [Refuse(move.id, refusals.no_engine())]
        ticket = Ticket(move.id, profile, follows=move.profile is None)
        if not self.runs(profile):
            error = refusals.of(profile, self.profiles.get(profile)) or self.breaker.refusal(profile, move.now)
            if error:
                return [Refuse(move.id, error)]
        if len(self.queue) >= self._limit and ticket not in self._hits([*self.queue.values(), ticket]):
            return [Refuse(move.id, refusals.queue_full(self._limit))]
        self.queue[move.id] = ticket
        return []

    def _leave(self, id_: str) -> list[Effect]:
        self.queue.pop(id_, None)
        self.leases.pop(id_, None)
        return []

    def _use(self, move: Use) -> list[Effect]:
        known = self.profiles.get(move.profile)
        if known is None or known.cannot_run:
            return []
        self.breaker.tried_again(move.profile)
        self.queue.pop(USE, None)
        self.queue[USE] = Ticket(USE, move.profile, move.cause)
        return self._supersede(move.profile)

    def _supersede(self, wanted: str) -> list[Effect]:
        """A load that no request waits for gives way to what a person wants now."""
        swap = self.swap
        if swap is None or swap.target in (None, wanted) or swap.stage is Stage.CANCELLING:
            return []
        return [] if self.waiting_for(swap.target) else self._give_up(swap)

    def _give_up(self, swap: Change) -> list[Effect]:
        swap.stage = Stage.CANCELLING
        return [CancelSwap()]

    def _stop(self, profile: str | None) -> list[Effect]:
        self._stops |= {name for name in self.residents if profile in (None, name)}
        self._fallback = None
        if profile in (None, self._previous):
            self._previous = None
        refused = self._refuse(
            [t for t in self.queue.values() if profile in (None, t.profile)], refusals.stopped(profile)
        )
        swap = self.swap
        if swap is None or swap.target is None or profile not in (None, swap.target):
            return refused
        self._stops.add(swap.target)  # it may come up before it can be cancelled
        return refused if swap.stage is Stage.CANCELLING else [*self._give_up(swap), *refused]

    def _cancel(self) -> list[Effect]:
        swap = self.swap
        if swap is None or swap.stage is Stage.CANCELLING:
            return []
        waiting = [t for t in self.queue.values() if t.profile == swap.target]
        return [*self._give_up(swap), *self._refuse(waiting, refusals.cancelled(swap.target))]

    def _catalog(self, profiles: Mapping[str, Known]) -> list[Effect]:
        self.profiles = dict(profiles)
        if self._fallback and refusals.of(self._fallback, profiles.get(self._fallback)):
            self._fallback = None
        self.breaker.read({name: known.fingerprint for name, known in profiles.items()})
        effects: list[Effect] = []
        for ticket in list(self.queue.values()):
            if not self.runs(ticket.profile) and (error := refusals.of(ticket.profile, profiles.get(ticket.profile))):
                effects += self._refuse([ticket], error)
        return effects

    def _settle_in(self, profile: str, fingerprint: str | None) -> None:
        known = self.profiles.get(profile)
        self.residents.pop(profile, None)
        self.residents[profile] = Resident(fingerprint, managed=known is None or known.managed)
        self.breaker.came_up(profile)

    def _died(self, move: EngineDied) -> list[Effect]:
        resident = self.residents.pop(move.profile, None)
        if resident is None:
            return []
        self.breaker.died(move.profile, resident.fingerprint or "", move.error, move.now)
        return self._cut([move.profile], move.error)

    def _drain_over(self) -> list[Effect]:
        swap = self.swap
        if swap is None or swap.stage is not Stage.DRAINING:
            return []
        return self._cut(swap.evict, refusals.cut(swap.target))

    def _cut(self, profiles: Iterable[str], error: SparkdashError) -> list[Effect]:
        doomed = set(profiles)
        ids = tuple(id_ for id_, held in self.leases.items() if held in doomed)
        for id_ in ids:
            del self.leases[id_]
        return [Cut(ids, error)] if ids else []

    def _evicted(self, profile: str) -> None:
        resident = self.residents.pop(profile, None)
        self._stops.discard(profile)
        if resident and resident.ready and self.swap and self.swap.target is not None:
            self._previous = profile

    def _done(self) -> list[Effect]:
        swap, self.swap = self.swap, None
        if swap is None or swap.target is None:
            return []
        self._settle_in(swap.target, swap.fingerprint)
        self._previous = self._fallback = None
        return self._grant([t for t in self.queue.values() if t.profile == swap.target])

    def _failed(self, move: SwapFailed) -> list[Effect]:
        swap, self.swap = self.swap, None
        if swap is None or swap.target is None:
            return []
        self.breaker.failed(swap.target, swap.fingerprint or "", move.error, move.now)
        if self._previous == swap.target:
            self._previous = None
        self._fallback = self._previous if self._may_return(move.now) else None
        waiting = [t for t in self.queue.values() if t.profile == swap.target]
        instead = self._whatever_runs() or self._fallback
        moved = [t for t in waiting if t.follows and instead]
        for ticket in moved:
            self.queue[ticket.id] = replace(ticket, profile=instead or "")
        return self._refuse([t for t in waiting if t not in moved], move.error)

    def _may_return(self, now: float) -> bool:
        name = self._previous
        if name is None or name in self._stops:
            return False
        return not refusals.of(name, self.profiles.get(name)) and not self.breaker.refusal(name, now)

    # What follows from the books, after every move.

    def _call_off(self) -> list[Effect]:
        """Nothing is stopped yet and nobody wants the target any more: leave everything as it is."""
        swap = self.swap
        if swap is None or swap.stage is not Stage.DRAINING or swap.target is None:
            return []
        wanted = swap.cause is SwapCause.FALLBACK or any(t.profile == swap.target for t in self.queue.values())
        return [] if wanted else self._give_up(swap)

    def _grant_hits(self) -> list[Effect]:
        return self._grant(self._hits(self.queue.values()))

    def _hits(self, tickets: Iterable[Ticket]) -> list[Ticket]:
        """Those whose engine runs and is not claimed by an older ticket of another profile."""
        claimed: set[str] = set()
        hits = []
        for ticket in tickets:
            if self._misses(ticket):
                claimed.update(self.evictions(ticket.profile))
            elif ticket.profile not in claimed:
                hits.append(ticket)
        return hits

    def _misses(self, ticket: Ticket) -> bool:
        """A person's wish also misses when the engine that runs was started from an older version of the profile."""
        if not self.runs(ticket.profile):
            return True
        known = self.profiles.get(ticket.profile)
        return (
            ticket.id == USE and known is not None and self.residents[ticket.profile].fingerprint != known.fingerprint
        )

    def _grant(self, tickets: Iterable[Ticket]) -> list[Effect]:
        effects: list[Effect] = []
        for ticket in list(tickets):
            del self.queue[ticket.id]
            self._places.pop(ticket.id, None)
            if ticket.id != USE:
                self.leases[ticket.id] = ticket.profile
                effects.append(Grant(ticket.id, ticket.profile))
        return effects

    def _begin(self) -> list[Effect]:
        if self.swap is not None:
            return []
        leaving = tuple(name for name in self.residents if name in self._stops)
        self._stops.clear()
        if leaving:
            return self._start(None, leaving, SwapCause.USER)
        oldest = next((t for t in self.queue.values() if self._misses(t)), None)
        if oldest is not None:
            cause = SwapCause.FALLBACK if oldest.profile == self._fallback else oldest.cause
            return self._start(oldest.profile, self.evictions(oldest.profile), cause)
        if self._fallback is not None:
            return self._start(self._fallback, self.evictions(self._fallback), SwapCause.FALLBACK)
        return []

    def _start(self, target: str | None, evict: tuple[str, ...], cause: SwapCause) -> list[Effect]:
        known = self.profiles.get(target) if target else None
        self.swap = Change(target, evict, cause, known.fingerprint if known else None)
        if cause is SwapCause.FALLBACK:
            self._fallback = self._previous = None
        return [BeginSwap(target, evict, cause)]

    def _evict(self) -> list[Effect]:
        swap = self.swap
        if swap is None or swap.stage is not Stage.DRAINING or any(map(self.in_flight, swap.evict)):
            return []
        swap.stage = Stage.GOING
        return [Evict(swap.evict)]

    def _tell_places(self) -> list[Effect]:
        line = [t for t in self._line() if t.id != USE]
        places = {ticket.id: place for place, ticket in enumerate(line, start=1)}
        told = [Wait(id_, place) for id_, place in places.items() if self._places.get(id_) != place]
        self._places = places
        return list(told)

    def _line(self) -> list[Ticket]:
        """The queue in the order in which it will be served: the swap's target first, then profile by profile."""
        ranks: dict[str | None, int] = {self.swap.target: 0} if self.swap else {}
        for ticket in self.queue.values():
            ranks.setdefault(ticket.profile, len(ranks))
        return sorted(self.queue.values(), key=lambda t: ranks[t.profile])

    def _refuse(self, tickets: Iterable[Ticket], error: SparkdashError) -> list[Effect]:
        effects: list[Effect] = []
        for ticket in tickets:
            del self.queue[ticket.id]
            if ticket.id != USE:
                effects.append(Refuse(ticket.id, error))
        return effects

    def _leaving(self) -> set[str]:
        return self._stops | set(self.swap.evict if self.swap else ())

    def _whatever_runs(self) -> str | None:
        running = [name for name in self.residents if self.runs(name)]
        if running:
            return running[-1]
        swap = self.swap
        return swap.target if swap and swap.stage is not Stage.CANCELLING else None
