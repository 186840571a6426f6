"""Fairness: the order of turns, and when a swap is held back.

Owns: the order of those who wait, and when a swap is held back for those whom it would interrupt.

Rule 1: order of arrival, batch behind the rest; whoever has waited `max_wait_s` goes before everyone else.
Rule 2: a request does not interrupt an engine in use before it has served `min_dwell_s`: agents ask one thing after
        another, and without a dwell two of them would swap for every question. In use: a request is on it, or one was
        `PAUSE_S` ago.
Rule 3: a batch request does not interrupt an engine that people or agents use at all.
Rule 4: `max_wait_s` ends both. Nobody is refused for having waited: that would throw its place away.
Rule 5: time changes a decision only when nothing is under way; `due` says when.

Pure.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from statistics import fmean

from sparkdash.domain.swap import SwapCause
from sparkdash.supervisor.scheduling.moves import Patience
from sparkdash.supervisor.scheduling.records import Resident, SchedulerRecords, Ticket

PAUSE_S = 5.0
"""An agent's pause between two requests: its tools take seconds. An engine that was used so lately still is in use."""


SERVED_FROM = 20
"""Requests of one profile that its service time is the mean of."""


class ServiceTimes:
    """Service times of requests, by profile."""

    def __init__(self) -> None:
        self._took: defaultdict[str, deque[float]] = defaultdict(lambda: deque(maxlen=SERVED_FROM))

    def note(self, profile: str, seconds: float) -> None:
        """Add the service time of one request."""
        self._took[profile].append(seconds)

    def next_free_s(self, profile: str, since: Sequence[float], now: float) -> float | None:
        """Estimate the seconds until the first running request ends; None without earlier service times.

        `since` has the start of each running request. The estimate is the mean service time less the time passed; for
        requests that take longer than the mean, it is the mean divided by the number of running requests.
        """
        took = self._took.get(profile)
        if not took or not since:
            return None
        usual = fmean(took)
        return min(max(usual - (now - began), usual / len(since)) for began in since)


def turn_order(tickets: Iterable[Ticket], patience: Patience, now: float) -> list[Ticket]:
    """Sort the waiting tickets, next first."""

    def rank(ticket: Ticket) -> int:
        if now - ticket.since >= patience.max_wait_s:
            return 0
        return 2 if ticket.batch else 1

    return sorted(tickets, key=rank)


def held_until(
    ticket: Ticket, leaving: Sequence[str], records: SchedulerRecords, patience: Patience, now: float
) -> float | None:
    """Return until when this ticket's swap waits for users of engines that it evicts; None: it may begin."""
    if ticket.cause is not SwapCause.REQUEST:
        return None
    ends = [_spared_until(name, ticket, records, patience, now) for name in leaving]
    until = min(max(ends, default=now), ticket.since + patience.max_wait_s)
    return until if until > now else None


def _spared_until(name: str, ticket: Ticket, records: SchedulerRecords, patience: Patience, now: float) -> float:
    resident = records.residents.get(name)
    if resident is None or not resident.ready or resident.stuck:
        return now
    in_use = _in_use_until(resident.used_at, busy=bool(records.in_flight(name)))
    until = min(in_use, resident.ready_at + patience.min_dwell_s)
    if ticket.batch:
        until = max(until, _in_use_until(resident.talked_at, busy=records.talking(name)))
    return until


def _in_use_until(last: float | None, *, busy: bool) -> float:
    if busy:
        return float("inf")
    return float("-inf") if last is None else last + PAUSE_S


def idle_at(name: str, resident: Resident, records: SchedulerRecords) -> float | None:
    """Return when this engine's allowed time without use ends; None: it may stay."""
    known = records.profiles.get(name)
    if known is None or known.idle_ttl_s is None or known.pinned or not resident.managed or not records.runs(name):
        return None
    if records.in_flight(name) or any(ticket.profile == name for ticket in records.queue.values()):
        return None
    return max(resident.ready_at, resident.used_at or resident.ready_at) + known.idle_ttl_s
