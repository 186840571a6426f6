"""Request queue: waiting and served requests are granted, refused, cut, or told their place; whose turn it is.

Rule 1: order of arrival, batch behind the rest; whoever has waited `max_wait_s` goes before everyone else.
Rule 2: a request does not interrupt an engine in use before it has served for its dwell: `min_dwell_s`, or
        `min_dwell_share` of the time that it took to load. Agents ask one thing after another, and without a dwell two
        of them would swap for every question. In use: a request is on it, or its clients may soon ask again
        (`likely_pause_s`).
Rule 3: a batch request does not interrupt an engine that people or agents use at all.
Rule 4: a request evicts an engine that somebody used only once it has waited `SETTLE_S`: what an editor sends while
        one types is given up sooner.
Rule 5: `max_wait_s` ends all three. Nobody is refused for having waited: that would throw its place away. Pure.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from sparkdash.domain.swap import SwapCause
from sparkdash.errors import SparkdashError, UpstreamError
from sparkdash.supervisor.decide import fit, refusals
from sparkdash.supervisor.decide.moves import Arrive, Cut, Effect, Grant, Hold, Patience, Refuse, Wait
from sparkdash.supervisor.decide.occupancy import Occupancy
from sparkdash.supervisor.decide.records import USE, HeldLease, Resident, SchedulerRecords, Ticket

PAUSE_S = 5.0
"""Least pause between two requests that an agent is given: its tools take seconds."""
PAUSE_MARGIN = 1.5
"""How much longer than the longest pause seen the next one may be."""
FEW_PAUSES = 3
SETTLE_S = 2.0
"""Wait after which a request is meant: editors give up sooner what they sent while one types."""
REMEMBERED = 20
"""Pauses of each profile's clients that are remembered."""


class EngineUse(NamedTuple):
    """Use of an engine by its clients. Times are monotonic seconds."""

    ready_at: float
    load_s: float = 0.0
    """Time that its load took; 0 of an engine that was adopted."""
    used_at: float | None = None
    """Time when a request was last granted or over; None: none was."""
    busy: bool = False
    pauses: Sequence[float] = ()
    """Seconds from the end of one request until the next one came, also where another engine had its place by then."""


def dwell_s(use: EngineUse, patience: Patience) -> float:
    return max(patience.min_dwell_s, patience.min_dwell_share * use.load_s) if patience.min_dwell_s else 0.0


def likely_pause_s(use: EngineUse, patience: Patience) -> float:
    """Estimate how long the engine's next request may take to come, as far as that is worth waiting for.

    While few pauses are known: as long as a load would, which is what a wrong guess costs.
    """
    dwell = dwell_s(use, patience)
    if len(use.pauses) < FEW_PAUSES:
        return max(PAUSE_S, min(use.load_s, dwell))
    short = [pause for pause in use.pauses if pause <= dwell]
    if 2 * len(short) < len(use.pauses):
        return PAUSE_S  # its clients mostly stay away longer than it would be kept
    return max(PAUSE_S, PAUSE_MARGIN * max(short))


def in_use_until(use: EngineUse, patience: Patience) -> float:
    if use.busy:
        return float("inf")
    return float("-inf") if use.used_at is None else use.used_at + likely_pause_s(use, patience)


def kept_until(use: EngineUse, patience: Patience) -> float:
    """Return until when no other request interrupts the engine."""
    return min(in_use_until(use, patience), use.ready_at + dwell_s(use, patience))


class ClientPauses:
    """Pauses between the requests of each profile, from the end of one until the next one comes."""

    def __init__(self) -> None:
        self._pauses: defaultdict[str, deque[float]] = defaultdict(lambda: deque(maxlen=REMEMBERED))
        self._ended: dict[str, float] = {}
        """Time when the last request ended, of profiles for which none has come since."""

    def arrived(self, profile: str, now: float) -> None:
        if (ended := self._ended.pop(profile, None)) is not None:
            self._pauses[profile].append(now - ended)

    def ended(self, profile: str, now: float) -> None:
        self._ended[profile] = now

    def of(self, profile: str) -> Sequence[float]:
        return self._pauses.get(profile, ())


def turn_order(tickets: Iterable[Ticket], patience: Patience, now: float) -> list[Ticket]:
    def rank(ticket: Ticket) -> int:
        if now - ticket.since >= patience.max_wait_s:
            return 0
        return 2 if ticket.batch else 1

    return sorted(tickets, key=rank)


def idle_at(name: str, resident: Resident, records: SchedulerRecords) -> float | None:
    """Return when this engine's allowed time without use ends; None: it may stay."""
    known = records.profiles.get(name)
    if known is None or known.idle_ttl_s is None or known.pinned or not resident.managed or not records.runs(name):
        return None
    if records.in_flight(name) or any(ticket.profile == name for ticket in records.queue.values()):
        return None
    return max(resident.ready_at, resident.used_at or resident.ready_at) + known.idle_ttl_s


class RequestQueue:
    """Queue and leases of one scheduler."""

    def __init__(self, records: SchedulerRecords, occupancy: Occupancy, patience: Patience, limit: int) -> None:
        self.now = 0.0
        """Time of the move that is handled, monotonic seconds."""
        self._records = records
        self._occupancy = occupancy
        self._patience = patience
        self._limit = limit
        self._places: dict[str, tuple[int, Hold | None]] = {}
        self._holds: dict[str, Hold] = {}
        """Holds of waiting requests, as last found."""
        self._pauses = ClientPauses()
        self._returning: dict[str, int] = {}
        """Requests, by profile, that were cut from a dead or stuck engine, less those that came back past the limit."""

    def apply_policy(self, patience: Patience, limit: int) -> None:
        self._patience, self._limit = patience, limit

    # Asked of one ticket.

    def choice(self, ticket: Ticket) -> fit.Choice:
        return self._occupancy.choice(ticket.profile, self.now, person=ticket.id == USE)

    def held_until(self, ticket: Ticket, choice: fit.Choice) -> float | None:
        """Return until when the ticket's swap waits for those whom it would interrupt; None: it may begin."""
        self._holds.pop(ticket.id, None)
        uses = self._uses(choice)
        if ticket.cause is not SwapCause.REQUEST or not uses:
            return None
        if (hold := self._hold(ticket, uses)) is not None:
            self._holds[ticket.id] = hold
        settles = [
            ticket.since + min(SETTLE_S, dwell_s(use, self._patience))
            for use in uses.values()
            if use.used_at is not None
        ]
        ends = [self._kept_until(name, use, ticket) for name, use in uses.items()]
        until = min(max(*ends, *settles, self.now), ticket.since + self._patience.max_wait_s)
        return until if until > self.now else None

    def hold(self, ticket: Ticket, choice: fit.Choice) -> Hold | None:
        """Return which engines in use a request would have to wait for, and until when at the latest."""
        return self._hold(ticket, self._uses(choice))

    def _hold(self, ticket: Ticket, uses: Mapping[str, EngineUse]) -> Hold | None:
        overdue = ticket.since + self._patience.max_wait_s
        kept = {name: use for name, use in uses.items() if self._kept_until(name, use, ticket) > self.now}
        if not kept or overdue <= self.now:
            return None
        served = max(use.ready_at + dwell_s(use, self._patience) for use in kept.values())
        return Hold(tuple(kept), overdue if ticket.batch else min(served, overdue))

    def is_used(self, name: str) -> bool:
        """Whether a request is on the engine, or its clients may soon ask again."""
        use = self._use(name)
        return use is not None and in_use_until(use, self._patience) > self.now

    def _uses(self, choice: fit.Choice) -> dict[str, EngineUse]:
        return {name: use for name in choice.names if (use := self._use(name)) is not None}

    def _use(self, name: str) -> EngineUse | None:
        """Return how a serving engine is used; None of one that serves nobody."""
        resident = self._records.residents.get(name)
        if resident is None or not resident.ready or resident.stuck:
            return None
        busy, pauses = bool(self._records.in_flight(name)), self._pauses.of(name)
        return EngineUse(resident.ready_at, resident.load_s, resident.used_at, busy, pauses)

    def _kept_until(self, name: str, use: EngineUse, ticket: Ticket) -> float:
        until = kept_until(use, self._patience)
        if ticket.batch:
            records = self._records
            talk = use._replace(used_at=records.residents[name].talked_at, busy=records.talking(name))
            until = max(until, in_use_until(talk, self._patience))
        return until

    def cannot_come(self, profile: str, choice: fit.Choice) -> SparkdashError | None:
        """Why no swap brings its engine; one that waits for an engine may find its file gone once that was evicted."""
        return refusals.unstartable(profile, self._records.profiles.get(profile)) or self._occupancy.refusal(
            profile, choice
        )

    def too_many(self, ticket: Ticket) -> SparkdashError | None:
        records, known = self._records, self._records.profiles.get(ticket.profile)
        limit = None if known is None else known.limit
        if limit is not None and records.in_flight(ticket.profile) + records.waiting_for(ticket.profile) >= limit:
            return refusals.too_many(ticket.profile, limit)
        if len(records.queue) < self._limit or not records.misses(ticket) or self._comes_back(ticket.profile):
            return None
        return refusals.queue_full(self._limit)

    def _comes_back(self, profile: str) -> bool:
        """Whether room is kept for a request of this profile: once admitted, it is not refused for lack of it."""
        left = self._returning.get(profile, 0)
        if left:
            self._returning[profile] = left - 1
        return left > 0

    # Done to those in it.

    def next(self) -> list[str]:
        queue = self._records.queue
        return [ticket.id for ticket in turn_order(queue.values(), self._patience, self.now)] if queue else []

    def leave(self, id_: str) -> None:
        self._records.queue.pop(id_, None)
        if held := self._records.leases.pop(id_, None):
            self._given_back(held)

    def arrived(self, profile: str) -> None:
        """Note the pause of the profile's clients that ends with a new request."""
        self._pauses.arrived(profile, self.now)

    def grant_at_once(self, move: Arrive, profile: str, now: float) -> bool:
        """Grant it here and now, if nobody can be before it and no limit or time is to be looked at."""
        resident = self._records.residents.get(profile)
        if resident is None or not resident.ready or resident.stuck or not self._plain(profile):
            return False
        self.now = now
        self._pauses.arrived(profile, now)
        self._records.leases[move.id] = HeldLease(profile, move.batch)
        resident.used_at = now
        if not move.batch:
            resident.talked_at = now
        self._records.note_use(profile, move.task, move.client, now)
        return True

    def end_at_once(self, id_: str, now: float) -> bool:
        """End a lease, if no request waits for that and no time begins by it."""
        held = self._records.leases.get(id_)
        if held is None or not self._plain(held.profile):
            return False
        self.now = now
        del self._records.leases[id_]
        self._given_back(held)
        return True

    def _plain(self, profile: str) -> bool:
        """Whether one request more or less on this profile changes no decision."""
        records = self._records
        if records.queue or records.stops or records.swaps:
            return False
        known = records.profiles.get(profile)
        return known is not None and known.limit is None and known.idle_ttl_s is None

    def grant_hits(self) -> list[Effect]:
        return self.grant([ticket for ticket in self._records.queue.values() if not self._records.misses(ticket)])

    def grant(self, tickets: Iterable[Ticket]) -> list[Effect]:
        effects: list[Effect] = []
        for ticket in list(tickets):
            del self._records.queue[ticket.id]
            self._places.pop(ticket.id, None)
            if ticket.id != USE:
                self._records.leases[ticket.id] = HeldLease(ticket.profile, ticket.batch)
                if resident := self._records.residents.get(ticket.profile):
                    resident.touch(self.now, ticket.batch)
                self._records.note_use(ticket.profile, ticket.task, ticket.client, self.now)
                effects.append(Grant(ticket.id, ticket.profile))
        return effects

    def refuse(self, tickets: Iterable[Ticket], error: SparkdashError) -> list[Effect]:
        effects: list[Effect] = []
        for ticket in tickets:
            del self._records.queue[ticket.id]
            if ticket.id != USE:
                effects.append(Refuse(ticket.id, error))
        return effects

    def refuse_requests_for(
        self, target: str, error: SparkdashError, instead: Callable[[Ticket], str | None]
    ) -> list[Effect]:
        """Refuse the requests for `target`, which does not come; requests for `auto` take what runs `instead`."""
        waiting = [t for t in self._records.queue.values() if t.profile == target and t.id != USE]
        lost = []
        for ticket in waiting:
            if ticket.follows and (other := instead(ticket)):
                self._records.queue[ticket.id] = replace(ticket, profile=other)
            else:
                lost.append(ticket)
        return self.refuse(lost, error)

    def cut(self, profiles: Iterable[str], error: SparkdashError) -> list[Effect]:
        doomed, leases = set(profiles), self._records.leases
        ids = tuple(id_ for id_, held in leases.items() if held.profile in doomed)
        for id_ in ids:
            held = leases.pop(id_)
            # a request that a person cut does not come back
            if error.code != refusals.CUT or isinstance(error, UpstreamError):
                self._returning[held.profile] = self._returning.get(held.profile, 0) + 1
        return [Cut(ids, error)] if ids else []

    def tell_places(self) -> list[Effect]:
        """Return a Wait for every request whose place changed."""
        if not (self._records.queue or self._places):
            return []
        line = [t.id for t in self._as_served() if t.id != USE]
        self._holds = {id_: hold for id_, hold in self._holds.items() if id_ in self._records.queue}
        places = {id_: (place, self._holds.get(id_)) for place, id_ in enumerate(line, start=1)}
        told = [Wait(id_, *place) for id_, place in places.items() if self._places.get(id_) != place]
        self._places = places
        return list(told)

    def _as_served(self) -> list[Ticket]:
        """Sort the queue by order of serving: the profile that is coming first, then profile by profile."""
        line = turn_order(self._records.queue.values(), self._patience, self.now)
        ranks: dict[str | None, int] = {target: rank for rank, target in enumerate(self._records.swaps)}
        for ticket in line:
            ranks.setdefault(ticket.profile, len(ranks))
        return sorted(line, key=lambda t: ranks[t.profile])

    def _given_back(self, held: HeldLease) -> None:
        self._pauses.ended(held.profile, self.now)
        if resident := self._records.residents.get(held.profile):
            resident.used_at = self.now
            if not held.batch:
                resident.talked_at = self.now
