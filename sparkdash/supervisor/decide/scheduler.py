"""Scheduler: grants requests and orders swaps; DESIGN.md has the table and the reasons.

Here is what each move changes of the records; `decisions` has what follows after every move.

* Rule 1: one move in, a list of effects out; the records already say what the effects order.
* Rule 2: a swap begins only for a ticket, a person, an offer or an idle engine. One that gives memory back begins while
  no other swap moves memory. One that only takes memory may also begin beside others that only take. One that does
  neither begins at once.
* Rule 3: what a lease holds is not evicted. A swap drains first; `Evict` is ordered when the last lease has left.
* Rule 4: tickets are looked at in line (`queue`). One whose engine runs is granted. The next one whose engine does
  not run chooses the next swap, and nobody behind it may take an engine that this swap evicts. All who wait when a swap
  is done are granted together.
* Rule 5: an offer (a fallback, a preload) evicts nobody. The return to the default profile evicts only engines that
  nobody has used for long, and none that is pinned. Pure.
"""

from collections.abc import Callable, Mapping
from typing import Any

from sparkdash.domain.node import LOCAL
from sparkdash.domain.swap import SwapCause
from sparkdash.errors import SparkdashError
from sparkdash.supervisor.decide import fit, moves, refusals
from sparkdash.supervisor.decide.breaker import Breaker
from sparkdash.supervisor.decide.decisions import Decisions
from sparkdash.supervisor.decide.occupancy import DecisionFacts, Occupancy
from sparkdash.supervisor.decide.queue import RequestQueue
from sparkdash.supervisor.decide.records import USE, Offers, PendingSwap, Resident, SchedulerRecords, Stage, Ticket


class Scheduler:
    """Hand it moves; carry its effects out in their order."""

    def __init__(
        self,
        profiles: Mapping[str, moves.ProfileFacts],
        *,
        queue_limit: int,
        facts: DecisionFacts,
        patience: moves.Patience,
    ) -> None:
        self.records = SchedulerRecords(dict(profiles))
        self.occupancy = Occupancy(self.records, facts)
        self._queue = RequestQueue(self.records, self.occupancy, patience, queue_limit)
        self._now = 0.0
        self.breaker = Breaker()
        self._offers = Offers()
        self.decisions = Decisions(self.records, self.occupancy, self._queue, self._offers, self.breaker)

    def handle(self, move: moves.Move, now: float) -> list[moves.Effect]:
        """Take note of the move, which came at `now` (monotonic seconds); what must be done."""
        self._now = self._queue.now = self.decisions.now = now
        self.decisions.default.note(move, now)
        return [
            *(_HANDLERS[type(move)](self, move) or []),
            *self.decisions.call_off(),
            *self.decisions.serve(),
            *self.decisions.evict(),
            *self._queue.tell_places(),
        ]

    def grant_at_once(self, move: moves.Arrive, now: float) -> str | None:
        """Grant a request where that changes only the table of leases; return its profile. None: `handle` must look."""
        due, name = self.decisions.due, move.profile or self.occupancy.auto(move.task, move.client)
        if name is None or (due is not None and due <= now) or not self._queue.grant_at_once(move, name, now):
            return None
        return name

    def end_at_once(self, id_: str, now: float) -> bool:
        """End a lease where that changes only the table of leases. False: `handle` must look."""
        due = self.decisions.due
        return (due is None or due > now) and self._queue.end_at_once(id_, now)

    @property
    def due(self) -> float | None:
        return self.decisions.due

    def expects(self, profile: str) -> bool:
        """Whether an engine of this profile is there, loads, is waited for, or replaces a stuck one."""
        records = self.records
        there = profile in records.residents or records.coming(profile) is not None
        return there or records.waiting_for(profile) > 0 or self._offers.repairs(profile)

    @property
    def stopping(self) -> bool:
        return bool(self.records.stops) or None in self.records.swaps or self.cancelling

    @property
    def cancelling(self) -> bool:
        return any(swap.stage is Stage.CANCELLING for swap in self.records.swaps.values())

    def choice(self, target: str, now: float, *, person: bool = True) -> fit.Choice:
        return self.occupancy.choice(target, now, person=person)

    def awaits_server(self, profile: str, now: float) -> bool:
        """Whether requests for a server that sparkdash does not start are refused until it answers again."""
        return not self.records.managed(profile) and self.breaker.refusal(profile, now) is not None

    def hold(self, target: str, now: float) -> moves.Hold | None:
        """Return which engines in use a request for the profile would have to wait for now."""
        self._queue.now = now
        return self._queue.hold(Ticket("", target, since=now), self.choice(target, now, person=False))

    # What came in, one method a move.

    def _adopted(self, move: moves.Adopted) -> list[moves.Effect]:
        if move.ready:
            self._came_up(move.profile, move.fingerprint, move.nodes)
            return []
        choice = fit.Choice(nodes=move.nodes)
        swap = PendingSwap(move.profile, choice, SwapCause.ADOPT, move.fingerprint, stage=Stage.LOADING)
        return [self.decisions.begin(swap)]

    def _reached(self, move: moves.Copied | moves.Admitted) -> None:
        if (swap := self.records.coming(move.target)) is None:
            return
        if isinstance(move, moves.Admitted):
            swap.stage, swap.loads_since = Stage.LOADING, self._now
        else:
            swap.stage = Stage.DRAINING

    def _arrive(self, move: moves.Arrive) -> list[moves.Effect]:
        profile = move.profile or self.occupancy.auto(move.task, move.client)
        if profile is None:
            anything_runs = any(map(self.records.runs, self.records.residents))
            return [moves.Refuse(move.id, refusals.no_engine(move.task if anything_runs else None))]
        self._queue.arrived(profile)
        known = self.records.profiles.get(profile)
        ticket = Ticket(
            move.id,
            profile,
            follows=move.profile is None,
            batch=move.batch,
            since=self._now,
            task=move.task,
            client=move.client,
            autocomplete=move.autocomplete or (known is not None and known.autocomplete),
        )
        if error := self._barred(profile) or self._queue.too_many(ticket):
            return [moves.Refuse(move.id, error)]
        self.records.queue[move.id] = ticket
        return []

    def _barred(self, profile: str) -> SparkdashError | None:
        """Why its engine will not come, when that is known already."""
        if self.records.runs(profile) or self.records.awaits_repair(profile):
            return None
        choice = self.occupancy.choice(profile, self._now, person=False)
        managed = self.records.managed(profile)
        return self._queue.cannot_come(profile, choice) or self.breaker.refusal(profile, self._now, managed=managed)

    def _catalog(self, move: moves.CatalogRead) -> list[moves.Effect]:
        profiles = move.profiles
        self.records.profiles = dict(profiles)
        self.breaker.read({name: known.fingerprint for name, known in profiles.items()})
        effects: list[moves.Effect] = []
        for ticket in list(self.records.queue.values()):
            error = refusals.unstartable(ticket.profile, profiles.get(ticket.profile))
            if error and not (self.records.runs(ticket.profile) or self.records.awaits_repair(ticket.profile)):
                effects += self._queue.refuse([ticket], error)
        return effects

    def _drain_over(self, move: moves.DrainOver) -> list[moves.Effect]:
        swap = self.records.swaps.get(move.target)
        if swap is None or swap.stage is not Stage.DRAINING:
            return []
        stopped = self.records.stops.intersection(swap.evict)  # by a person, after the swap had begun
        goes = [name for name in swap.evict if name not in stopped]
        return [*self._queue.cut(stopped, refusals.cut(None)), *self._queue.cut(goes, refusals.cut(swap.target))]

    def _end_swap(self, target: str | None, *, came: bool) -> PendingSwap | None:
        swap = self.records.swaps.pop(target, None)
        if swap is not None:
            self.occupancy.ended(swap, came=came)
        return swap

    def _cancelled(self, move: moves.SwapCancelled) -> None:
        swap = self._end_swap(move.target, came=False)
        if swap is not None and swap.target is not None and swap.given_up:
            self._offers.failed(swap.target, self.records.profiles.get(swap.target))

    def _done(self, move: moves.SwapDone) -> list[moves.Effect]:
        swap = self._end_swap(move.target, came=True)
        if swap is None or swap.target is None:
            return []
        load_s = 0.0 if swap.loads_since is None else self._now - swap.loads_since
        self._came_up(swap.target, swap.fingerprint, swap.choice.nodes, load_s)
        self._offers.succeeded(swap.target)
        return self._queue.grant([t for t in self.records.queue.values() if t.profile == swap.target])

    def _failed(self, move: moves.SwapFailed) -> list[moves.Effect]:
        error, swap = move.error, self._end_swap(move.target, came=False)
        if swap is None or swap.target is None:
            return []
        evicted = self._offers.failed(swap.target, self.records.profiles.get(swap.target))
        self.breaker.failed(swap.target, swap.fingerprint or "", error, self._now, evicted=evicted)
        if (wish := self.records.queue.get(USE)) and wish.profile == swap.target:
            del self.records.queue[USE]
        if not self.records.managed(swap.target):
            error = self.breaker.refusal(swap.target, self._now, managed=False) or error
        return self.decisions.refuse_requests_for(swap.target, error)

    # Orders of people.

    def _use(self, move: moves.Use) -> list[moves.Effect]:
        if refusals.unstartable(move.profile, self.records.profiles.get(move.profile)):
            return []
        self.breaker.tried_again(move.profile)
        older = self.records.queue.pop(USE, None)
        self.records.queue[USE] = Ticket(USE, move.profile, move.cause, since=self._now)
        return self._supersede(move.profile, older.profile if older else None)

    def _supersede(self, wanted: str, older: str | None) -> list[moves.Effect]:
        """Cancel loads that no request waits for in favour of a person's choice, unless both can load at once.

        So can an `older` choice that waits until the load before it has taken its memory: it comes as a preload.
        """
        records, choice = self.records, self.choice(wanted, self._now)
        if not records.managed(wanted) or self.occupancy.beside(wanted, choice):
            if older and not records.coming(older) and self.occupancy.beside(older, self.choice(older, self._now)):
                self._offers.preload((older,), SwapCause.PRELOAD)
            return []
        moving = {swap.target for swap in records.moving_on(records.touched(choice))} - {None, wanted}
        return self.decisions.cancel_swaps(
            [name for name in records.swaps if name in moving and not records.waiting_for(name)]
        )

    def _stop(self, move: moves.Stop) -> list[moves.Effect]:
        records, profile = self.records, move.profile
        records.stops |= {name for name in records.residents if profile in (None, name)}
        self._offers.stopped(profile)
        waiting = [t for t in records.queue.values() if profile in (None, t.profile)]
        refused = self._queue.refuse(waiting, refusals.stopped(profile))
        coming = [name for name in records.swaps if name is not None and profile in (None, name)]
        records.stops.update(coming)  # it may come up before it can be cancelled
        # a stop waits until memory is at rest, but not for a copy: tickets begin that swap anew
        copying = self.decisions.copying_on(records.stops)
        return [*self.decisions.cancel_swaps(dict.fromkeys([*coming, *copying])), *refused]

    def _cancel(self, _move: moves.Cancel) -> list[moves.Effect]:
        effects: list[moves.Effect] = []
        for target, swap in list(self.records.swaps.items()):
            if swap.stage is not Stage.CANCELLING:
                waiting = [t for t in self.records.queue.values() if t.profile == target]
                effects += [
                    *self.decisions.cancel_swaps([target]),
                    *self._queue.refuse(waiting, refusals.cancelled(target)),
                ]
        return effects

    # Engines that are there.

    def _came_up(self, profile: str, fingerprint: str | None, nodes: tuple[str, ...], load_s: float = 0.0) -> None:
        """An engine of this profile is ready on these nodes; none for one that is not ours."""
        residents, nodes = self.records.residents, nodes or (LOCAL,)
        residents.pop(profile, None)
        residents[profile] = Resident(fingerprint, self.records.managed(profile), self._now, nodes, load_s)
        self.records.ran_on[profile] = nodes
        self.breaker.came_up(profile)

    def _died(self, move: moves.EngineDied) -> list[moves.Effect]:
        """Cut the engine's leases; refuse its waiting requests if it may not start now; restart a stuck one."""
        name, unwanted = move.profile, move.profile in self.records.leaving()
        resident = self.records.residents.pop(name, None)
        if resident is None:
            return []
        self.breaker.died(name, resident.fingerprint or "", move.error, self._now)
        effects = self._cut(name, move.error)
        self.records.stops.discard(name)
        if refusal := self.breaker.refusal(name, self._now):
            return (
                effects if self.records.coming(name) else [*effects, *self.decisions.refuse_requests_for(name, refusal)]
            )
        if move.error.code == moves.STUCK and not unwanted:
            self._offers.repair(name)
        return effects

    def _held(self, move: moves.EngineHeld) -> list[moves.Effect]:
        """Have the stuck engine serve nobody until it recovers or is replaced. Its drain is over."""
        resident = self.records.residents.get(move.profile)
        if resident is None:
            return []
        resident.stuck = True
        return self._cut(move.profile, move.error)

    def _recovered(self, move: moves.EngineRecovered) -> None:
        if resident := self.records.residents.get(move.profile):
            resident.stuck = False

    def _wont_stop(self, move: moves.WontStop) -> None:
        if resident := self.records.residents.get(move.profile):
            resident.ready = False

    def _evicted(self, move: moves.Evicted) -> None:
        """Remove an evicted engine; it may fall back if the swap that evicted it fails."""
        records, profile = self.records, move.profile
        resident = records.residents.pop(profile, None)
        records.stops.discard(profile)
        cause = next((swap.target for swap in records.swaps.values() if profile in swap.evict), None)
        if resident and resident.ready and cause is not None:
            self._offers.evicted(profile, cause, resident)

    def _cut(self, profile: str, error: SparkdashError) -> list[moves.Effect]:
        """Cut the engine's leases; for good where a person stops it, as a returning request would start it again."""
        stop = self.records.swaps.get(None)
        is_stopped = profile in self.records.stops or (stop is not None and profile in stop.evict)
        return self._queue.cut([profile], refusals.cut_short(error) if is_stopped else error)


_HANDLERS: dict[type[moves.Move], Callable[[Scheduler, Any], list[moves.Effect] | None]] = {
    moves.Adopted: Scheduler._adopted,
    moves.Admitted: Scheduler._reached,
    moves.Arrive: Scheduler._arrive,
    moves.Cancel: Scheduler._cancel,
    moves.CatalogRead: Scheduler._catalog,
    moves.Copied: Scheduler._reached,
    moves.DrainOver: Scheduler._drain_over,
    moves.EngineDied: Scheduler._died,
    moves.EngineHeld: Scheduler._held,
    moves.EngineRecovered: Scheduler._recovered,
    moves.Evicted: Scheduler._evicted,
    moves.Leave: lambda scheduler, move: scheduler._queue.leave(move.id),
    moves.PolicyRead: lambda scheduler, move: scheduler._queue.apply_policy(move.patience, move.queue_limit),
    moves.Preload: lambda scheduler, move: scheduler._offers.preload(move.profiles, move.cause),
    moves.Release: lambda scheduler, move: scheduler.breaker.release(move.profile),
    moves.Stop: Scheduler._stop,
    moves.SwapCancelled: Scheduler._cancelled,
    moves.SwapDone: Scheduler._done,
    moves.SwapFailed: Scheduler._failed,
    moves.Tick: lambda _scheduler, _move: None,
    moves.Use: Scheduler._use,
    moves.WontStop: Scheduler._wont_stop,
}
