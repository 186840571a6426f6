"""Decisions that follow from the records after every move: grants, and swaps that begin or are called off. Pure."""

from collections.abc import Collection, Iterable
from dataclasses import replace

from sparkdash.domain.node import LOCAL
from sparkdash.domain.swap import DefaultProfile, SwapCause
from sparkdash.errors import SparkdashError
from sparkdash.supervisor.decide import fit, moves, refusals
from sparkdash.supervisor.decide.breaker import Breaker
from sparkdash.supervisor.decide.occupancy import Occupancy
from sparkdash.supervisor.decide.queue import RequestQueue, idle_at
from sparkdash.supervisor.decide.records import OFFERED, USE, Offers, PendingSwap, SchedulerRecords, Stage, Ticket

UNWANTED_S = 5.0
"""Time for which nobody waits for a load until it counts as given up: SDKs try again within it."""
_CHANGES = (
    moves.Adopted,
    moves.EngineDied,
    moves.Evicted,
    moves.PolicyRead,
    moves.SwapCancelled,
    moves.SwapDone,
    moves.SwapFailed,
)


class DefaultReturn:
    """Keeps the time of the return for one scheduler."""

    def __init__(self, records: SchedulerRecords) -> None:
        self.policy: DefaultProfile | None = None
        self._records = records
        self._changed_at = 0.0
        """Time at which engines last came or went, monotonic seconds."""
        self._held = False
        """Whether a person stopped or cancelled something, and nothing was loaded since."""

    def note(self, move: moves.Move, now: float) -> None:
        match move:
            case moves.PolicyRead(default=default):
                self.policy = default
            case moves.Stop() | moves.Cancel():
                self._held = True
            case moves.Use():
                self._held = False
            case moves.SwapDone(target=target) if target is not None:
                self._held = False
        if isinstance(move, _CHANGES):
            self._changed_at = now

    @property
    def wanted(self) -> DefaultProfile | None:
        """The policy, where its profile is not there and may come back by itself."""
        policy = self.policy
        if policy is None or self._held or policy.profile in self._records.residents:
            return None
        return policy

    def due_at(self, choice: fit.Choice, now: float) -> float:
        """Time from which `wanted` may come, `choice` being who leaves for it: each unused for as long as it takes."""
        policy, records = self.policy, self._records
        after_s = policy.after_s if policy is not None else 0.0
        ends = [self._changed_at]
        for name in choice.names:
            resident = records.residents.get(name)
            if records.in_flight(name):
                ends.append(now)
            elif resident is not None:
                ends.append(max(resident.ready_at, resident.used_at or resident.ready_at))
        return max(ends) + after_s


class Decisions:
    """Decisions of one scheduler, on its records."""

    def __init__(
        self, records: SchedulerRecords, occupancy: Occupancy, queue: RequestQueue, offers: Offers, breaker: Breaker
    ) -> None:
        self.now = 0.0
        """Time of the move that is handled, monotonic seconds."""
        self.due: float | None = None
        """Time at which a Tick is wanted, monotonic seconds: then time itself changes a decision."""
        self.default = DefaultReturn(records)
        self._records = records
        self._occupancy = occupancy
        self._queue = queue
        self._offers = offers
        self._breaker = breaker
        self._waits: list[tuple[float, frozenset[str]]] = []
        """Times at which held-back swaps may begin, with their nodes, of the present `serve`."""
        self._blocked: set[str] = set()
        """Nodes on which a stop or a ticket waits for memory to be at rest, in the present `serve`."""
        self._found: dict[tuple[str, bool], tuple[fit.Choice, SparkdashError | None]] = {}
        """See `_choice`."""

    def waits_for(self, target: str, choice: fit.Choice) -> tuple[str, ...]:
        if self._records.coming(target) or self._may_begin(target, choice):
            return ()
        moving = self._records.moving_on(self._records.touched(choice))
        return tuple(swap.target for swap in moving if swap.target is not None)

    def cancel_swaps(self, targets: Iterable[str | None]) -> list[moves.Effect]:
        effects: list[moves.Effect] = []
        for target in targets:
            swap = self._records.swaps[target]
            if swap.stage is not Stage.CANCELLING:
                swap.stage = Stage.CANCELLING
                effects.append(moves.CancelSwap(target))
        return effects

    def copying_on(self, names: Iterable[str]) -> list[str | None]:
        records = self._records
        nodes = {node for name in names if name in records.residents for node in records.residents[name].nodes}
        return [swap.target for swap in records.moving_on(nodes) if swap.stage is Stage.COPYING]

    def refuse_requests_for(self, target: str, error: SparkdashError) -> list[moves.Effect]:
        """Refuse requests for an engine that does not come; one for `auto` gets a running engine, else a fallback."""
        others = (name for name in self._offers.fallbacks if name != target and self.may_come(name))
        fallback = next(others, None)
        return self._queue.refuse_requests_for(
            target, error, lambda t: self._occupancy.auto(t.task, t.client) or fallback
        )

    def may_come(self, name: str) -> bool:
        """Whether the profile is not there yet, and nothing but memory prevents its start."""
        return not (
            refusals.unstartable(name, self._records.profiles.get(name))
            or (name not in self._offers.former and self._breaker.refusal(name, self.now))
            or name in self._records.residents
            or name in self._records.swaps
        )

    def call_off(self) -> list[moves.Effect]:
        """Cancel unwanted swaps, before they have stopped anything or if they interrupted somebody."""
        wanted = {ticket.profile for ticket in self._records.queue.values()}
        unwanted = [
            swap
            for target, swap in self._records.swaps.items()
            if target not in (None, *wanted) and swap.cause not in OFFERED
        ]
        for swap in self._records.swaps.values():
            if swap not in unwanted:
                swap.unwanted_since = None
            elif swap.unwanted_since is None:
                swap.unwanted_since = self.now
        begun = [swap.target for swap in unwanted if swap.stage in (Stage.COPYING, Stage.DRAINING)]
        return [*self.cancel_swaps(begun), *self._give_up(swap for swap in unwanted if swap.interrupts)]

    def _give_up(self, swaps: Iterable[PendingSwap]) -> list[moves.Effect]:
        """Cancel those of the swaps for which nobody has waited for a while."""
        given_up = [swap for swap in swaps if (at := _given_up_at(swap)) is not None and at <= self.now]
        for swap in given_up:
            swap.given_up = True
        return self.cancel_swaps(swap.target for swap in given_up)

    def serve(self) -> list[moves.Effect]:
        """Grant and begin everything that is possible, in the order of turns."""
        self.due = None
        effects = self._begin_stop()
        self._waits = []
        self._found.clear()
        # a stop, or a swap that could begin, waits for memory at rest: nothing behind it may take memory first
        self._blocked = self._to_be_stopped()
        for id_ in self._queue.next():
            # the refusal of an older ticket may have ended this one, or moved it elsewhere
            if (ticket := self._records.queue.get(id_)) is not None and (made := self._turn_of(ticket)):
                self._found.clear()
                effects += made
        effects += self._queue.grant_hits()  # tickets that were moved to an engine that runs
        if not self._waits and not self._blocked:
            effects += self._offer()
        effects += self._end_idle()
        effects += self._return_to_default()
        times = (
            at for swap in self._records.swaps.values() if (at := _given_up_at(swap)) is not None and at > self.now
        )
        self.due = min([*times, *([] if self.due is None else [self.due])], default=None)
        return effects

    def _turn_of(self, ticket: Ticket) -> list[moves.Effect]:
        if ticket.autocomplete and not self._records.runs(ticket.profile):
            return self._decline_autocomplete(ticket)
        if self._records.coming(ticket.profile) or self._awaits_repair(ticket):
            return []
        return self._begin_for(ticket) if self._records.misses(ticket) else self._queue.grant([ticket])

    def _begin_for(self, ticket: Ticket) -> list[moves.Effect]:
        """Begin the swap of a ticket whose engine does not run, or refuse it, or note what it waits for."""
        (choice, error), managed = self._choice(ticket), self._records.managed(ticket.profile)
        if error is not None:
            # while memory moves, the answer may change once it rests
            return self._declined(ticket, error) if self._records.at_rest or not managed else []
        touched = self._records.touched(choice)
        if (until := self._queue.held_until(ticket, choice)) is not None:
            self._waits.append((until, touched))
            return []
        if (managed and not touched.isdisjoint(self._blocked)) or not self._may_begin(ticket.profile, choice):
            if managed:
                self._blocked |= touched
            return self._give_up(self._records.moving_on(touched)) if managed else []
        return self._start(ticket.profile, choice, ticket.cause)

    def _choice(self, ticket: Ticket) -> tuple[fit.Choice, SparkdashError | None]:
        """Choose where the ticket's engine would come, or why it cannot: once for all its tickets, until one moves.

        Each look reads the memory of the box, and 200 tickets looked at every move.
        """
        key = (ticket.profile, ticket.id == USE)
        if key not in self._found:
            choice = self._queue.choice(ticket)
            self._found[key] = choice, self._queue.cannot_come(ticket.profile, choice)
        return self._found[key]

    def _decline_autocomplete(self, ticket: Ticket) -> list[moves.Effect]:
        """Refuse a request that waits for nothing; its engine comes for the next ones, if it fits beside what runs."""
        choice, _ = self._choice(ticket)
        if not choice.leaving and choice.fits and self.may_come(ticket.profile):
            self._offers.preload((ticket.profile,), SwapCause.PRELOAD)
        comes = not choice.leaving or self._records.coming(ticket.profile) is not None
        return self._queue.refuse([ticket], refusals.no_autocomplete(ticket.profile, comes=comes))

    def _awaits_repair(self, ticket: Ticket) -> bool:
        """Whether a request waits for a stuck engine. A request for `auto` is moved to another engine, if one runs."""
        if ticket.id == USE or not self._records.awaits_repair(ticket.profile):
            return False
        if ticket.follows and (other := self._occupancy.auto(ticket.task, ticket.client)):
            self._records.queue[ticket.id] = replace(ticket, profile=other)
        return True

    def _may_begin(self, target: str, choice: fit.Choice) -> bool:
        """Whether a swap to the target may begin beside those under way."""
        records = self._records
        if target in records.swaps or target in records.leaving():
            return False
        moving = records.moving_on(records.touched(choice)) if self._moves_memory(target, choice) else []
        if not moving:
            return True
        return all(swap.stage is Stage.LOADING for swap in moving) and self._occupancy.beside(target, choice)

    def _moves_memory(self, target: str | None, choice: fit.Choice) -> bool:
        """Whether an engine of our nodes comes or leaves. One that runs is ours, whatever its file says by now."""
        leaving = (self._records.residents.get(name) for name in choice.names)
        comes = target is not None and self._records.managed(target)
        return comes or any(resident is not None and resident.managed for resident in leaving)

    def _begin_stop(self) -> list[moves.Effect]:
        """Begin the stops that a person ordered: our engines once nothing else moves memory there, others at once."""
        records = self._records
        records.stops &= {*records.residents, *filter(None, records.swaps)}
        if None in records.swaps:
            return []
        leaving = [
            name
            for name, resident in records.residents.items()
            if name in records.stops and name not in records.swaps
            if not resident.managed or not records.moving_on(resident.nodes)
        ]
        records.stops.difference_update(leaving)
        return self._start(None, _leave_because(leaving, "a person stopped it"), SwapCause.USER) if leaving else []

    def _to_be_stopped(self) -> set[str]:
        records = self._records
        there = (records.residents[name].nodes for name in records.stops if name in records.residents)
        coming = (records.swaps[name].nodes for name in records.stops if name in records.swaps)
        return set().union(*there, *coming)

    def _declined(self, ticket: Ticket, error: SparkdashError) -> list[moves.Effect]:
        if ticket.id != USE:
            return self.refuse_requests_for(ticket.profile, error)
        del self._records.queue[USE]
        return [moves.Decline(ticket.profile, error)]

    def _offer(self) -> list[moves.Effect]:
        effects: list[moves.Effect] = []
        while (offer := self._offers.next()) is not None:
            name, cause = offer
            choice = self._occupancy.choice(name, self.now, person=False)
            error = self._queue.cannot_come(name, choice)
            if self.may_come(name) and not self._may_begin(name, choice):
                break  # looked at again once the swaps under way are done
            self._offers.take()
            if not self.may_come(name):
                continue
            if error is None and not choice.leaving:
                effects += self._start(name, choice, cause)
            elif cause is not SwapCause.FALLBACK:
                effects.append(moves.Decline(name, error or refusals.not_offered(name, choice, cause)))
        return effects

    def _end_idle(self) -> list[moves.Effect]:
        if None in self._records.swaps:
            return []
        ends = self._idle_ends()
        over = [name for name, at in ends.items() if at <= self.now]
        if over:
            return self._start(
                None, _leave_because(over, "nobody has used it for as long as its `idle_ttl_s`"), SwapCause.IDLE
            )
        waits = [until for until, nodes in self._waits if self._is_calm(nodes)]
        soonest = min([*waits, *ends.values()], default=float("inf"))
        self.due = soonest if soonest < float("inf") else None
        return []

    def _idle_ends(self) -> dict[str, float]:
        """Times at which residents that may be stopped have been idle for as long as they may be."""
        return {
            name: at
            for name, resident in self._records.residents.items()
            if self._is_calm(resident.nodes) and (at := idle_at(name, resident, self._records)) is not None
        }

    def _return_to_default(self) -> list[moves.Effect]:
        wanted, records = self.default.wanted, self._records
        if wanted is None or records.swaps or records.queue or records.stops or not self.may_come(wanted.profile):
            return []
        choice = self._occupancy.choice(wanted.profile, self.now, person=False)
        at = self.default.due_at(choice, self.now)
        if at <= self.now and self._queue.cannot_come(wanted.profile, choice) is None:
            return self._start(wanted.profile, choice, SwapCause.DEFAULT)
        again = at if at > self.now else self.now + wanted.after_s
        self.due = again if self.due is None else min(self.due, again)
        return []

    def _is_calm(self, nodes: Collection[str]) -> bool:
        """Whether no swap moves memory of these nodes; with none named, of any node."""
        return not self._records.moving_on(nodes) if nodes else self._records.at_rest

    def _start(self, target: str | None, choice: fit.Choice, cause: SwapCause) -> list[moves.Effect]:
        records = self._records
        known = records.profiles.get(target) if target else None
        fingerprint = known.fingerprint if known else None
        former = self._offers.former.get(target or "") if cause is SwapCause.FALLBACK else None
        moves_memory = self._moves_memory(target, choice)
        if target is not None:
            if cause is SwapCause.REQUEST and self._offers.repairs(target) and not choice.leaving:
                cause = SwapCause.REPAIR
            self._offers.begun(target)
        copies = target is not None and any(node != LOCAL for node in choice.nodes)
        stage = Stage.COPYING if copies else Stage.DRAINING
        as_before = former is not None
        swap = PendingSwap(target, choice, cause, former or fingerprint, moves_memory, stage, as_before=as_before)
        swap.interrupts = any(map(self._queue.is_used, choice.names))
        return [self.begin(swap)]

    def begin(self, swap: PendingSwap) -> moves.BeginSwap:
        self._occupancy.begun(swap)
        self._records.swaps[swap.target] = swap
        reasons = {one.profile: one.reason for one in swap.choice.leaving}
        copies = swap.stage is Stage.COPYING
        return moves.BeginSwap(swap.target, swap.evict, swap.cause, reasons, swap.choice.nodes, copies, swap.as_before)

    def evict(self) -> list[moves.Effect]:
        effects: list[moves.Effect] = []
        for target, swap in self._records.swaps.items():
            if swap.stage is Stage.DRAINING and not any(map(self._records.in_flight, swap.evict)):
                swap.stage = Stage.GOING
                effects.append(moves.Evict(target, swap.evict))
        return effects


def _given_up_at(swap: PendingSwap) -> float | None:
    """Return when the load of a request counts as given up; None while somebody waits for it, and of other loads."""
    if swap.unwanted_since is None or swap.cause is not SwapCause.REQUEST or swap.stage is Stage.CANCELLING:
        return None
    return swap.unwanted_since + UNWANTED_S


def _leave_because(names: Iterable[str], reason: str) -> fit.Choice:
    return fit.Choice(tuple(fit.Leaving(name, reason) for name in names))
