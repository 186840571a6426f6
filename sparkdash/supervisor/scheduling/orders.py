"""Orders of people: use, preload, stop, cancel and release, as the scheduler records them.

Owns: what an order changes of the records at once. Must not decide what follows: `decisions` does.

Pure.
"""

from __future__ import annotations

from sparkdash.supervisor.scheduling import refusals
from sparkdash.supervisor.scheduling.breaker import Breaker
from sparkdash.supervisor.scheduling.decisions import Decisions
from sparkdash.supervisor.scheduling.moves import Cancel, Effect, Preload, Release, Stop, Use
from sparkdash.supervisor.scheduling.occupancy import Occupancy
from sparkdash.supervisor.scheduling.offers import Offers
from sparkdash.supervisor.scheduling.queue import RequestQueue
from sparkdash.supervisor.scheduling.records import USE, SchedulerRecords, Stage, Ticket


class PersonOrders:
    """Applies people's orders to the scheduler's records."""

    def __init__(
        self,
        records: SchedulerRecords,
        occupancy: Occupancy,
        queue: RequestQueue,
        offers: Offers,
        breaker: Breaker,
        decisions: Decisions,
    ) -> None:
        self._records = records
        self._occupancy = occupancy
        self._queue = queue
        self._offers = offers
        self._breaker = breaker
        self._decisions = decisions

    def take(self, move: Use | Preload | Stop | Cancel | Release, now: float) -> list[Effect]:
        """Record the order, which came at `now`; return what must be done."""
        match move:
            case Use():
                return self._use(move, now)
            case Preload(profiles=profiles, cause=cause):
                self._offers.preload(profiles, cause)
            case Stop(profile=profile):
                return self._stop(profile)
            case Cancel():
                return self._cancel()
            case Release(profile=profile):
                self._breaker.release(profile)
        return []

    def _use(self, move: Use, now: float) -> list[Effect]:
        if refusals.unstartable(move.profile, self._records.profiles.get(move.profile)):
            return []
        self._breaker.tried_again(move.profile)
        self._records.queue.pop(USE, None)
        self._records.queue[USE] = Ticket(USE, move.profile, move.cause, since=now)
        return self._supersede(move.profile, now)

    def _supersede(self, wanted: str, now: float) -> list[Effect]:
        """Cancel loads that no request waits for in favour of a person's choice, unless both can load at the same
        time.
        """
        records, choice = self._records, self._occupancy.choice(wanted, now, person=True)
        if not records.managed(wanted) or self._occupancy.beside(wanted, choice):
            return []
        moving = {swap.target for swap in records.moving_on(records.touched(choice))} - {None, wanted}
        return self._decisions.cancel_swaps(
            [name for name in records.swaps if name in moving and not records.waiting_for(name)]
        )

    def _stop(self, profile: str | None) -> list[Effect]:
        records = self._records
        records.stops |= {name for name in records.residents if profile in (None, name)}
        self._offers.stopped(profile)
        waiting = [t for t in records.queue.values() if profile in (None, t.profile)]
        refused = self._queue.refuse(waiting, refusals.stopped(profile))
        coming = [name for name in records.swaps if name is not None and profile in (None, name)]
        records.stops.update(coming)  # it may come up before it can be cancelled
        # a stop waits until memory is at rest, but not for a copy: tickets begin that swap anew
        copying = self._decisions.copying_on(records.stops)
        return [*self._decisions.cancel_swaps(dict.fromkeys([*coming, *copying])), *refused]

    def _cancel(self) -> list[Effect]:
        effects: list[Effect] = []
        for target, swap in list(self._records.swaps.items()):
            if swap.stage is not Stage.CANCELLING:
                waiting = [t for t in self._records.queue.values() if t.profile == target]
                effects += [
                    *self._decisions.cancel_swaps([target]),
                    *self._queue.refuse(waiting, refusals.cancelled(target)),
                ]
        return effects
