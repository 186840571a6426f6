"""Records: everything that the store is told, and what it answers from memory.

Owns: the part of the database that stays in memory, and the rows that are not written yet. Must not know when and how
rows are written: the store itself does.
"""

from __future__ import annotations

from abc import abstractmethod

from sparkdash.domain.engine import Parked
from sparkdash.domain.event import Notice
from sparkdash.domain.history.figures import measured_of
from sparkdash.domain.incident import Incident
from sparkdash.domain.lease import Request
from sparkdash.domain.memory.contiguity import LoadContiguity
from sparkdash.domain.memory.footprint import Footprint, Weighing
from sparkdash.domain.memory.guard import GuardKill
from sparkdash.domain.metric import Sample
from sparkdash.domain.swap import Swap, SwapOutcome, SwapPhase
from sparkdash.store import rows, usage
from sparkdash.store.history.recent_past import RecentPast
from sparkdash.store.history.seconds import SecondBuckets
from sparkdash.store.learned import Learned, Steps
from sparkdash.store.pending_rows import PendingRows
from sparkdash.store.transactions import StoredState

FIGURES_S = 1.0
"""Delay of further samples of a second: a sample that begins a second is written at once."""
IDLE_FIGURES_S = 60.0
"""Delay that collects figures into one transaction while no engine runs."""


class Records:
    """Records to be written, which the subclass writes."""

    def __init__(self) -> None:
        self._pending = PendingRows()
        self._seconds = SecondBuckets()
        self._learned = Learned()
        self._today = usage.RecentTokens()
        self.parked: dict[str, Parked] = {}
        """Parked profiles of an earlier daemon, by name."""
        self.attached: dict[str, str] = {}
        """Attached servers that an earlier daemon used: profile and fingerprint."""
        self.incidents: list[Incident] = []
        """Incidents of earlier daemons, oldest first."""
        self.past = RecentPast()
        """Requests, swaps and notices of earlier daemons; empty if the database could not be read at the start."""

    def expected_s(self, fingerprint: str) -> float | None:
        """Median time of this launch's last swaps without their drain; None before the first.

        The drain depends on the requests of the engine before.
        """
        return self._learned.expected_s(fingerprint)

    def steps(self, key: str) -> tuple[Steps, ...]:
        """Timed steps of the last swaps with this fingerprint or kin, oldest first."""
        return self._learned.steps(key)

    def footprint(self, fingerprint: str) -> Footprint | None:
        """Memory of this launch by its last loads; None before the first load that counts."""
        return self._learned.footprint(fingerprint)

    def record_swap(self, swap: Swap, fingerprint: str, kin: str = "", *, whole: bool = True) -> None:
        """Record a finished swap. `fingerprint` is its target's; `kin` is shared by launches that load alike. Both are
        empty for a swap that only stops.

        A swap that is not `whole` began under an earlier daemon, and its remaining time teaches nothing.
        """
        took = sum(seconds for phase, seconds in swap.stage_s.items() if phase not in (SwapPhase.COPY, SwapPhase.DRAIN))
        if swap.outcome is SwapOutcome.DONE and whole and swap.target is not None:
            self._learned.learn_times(fingerprint, kin, took, swap.steps)
        self._write(rows.PUT_SWAP, rows.swap_row(swap, fingerprint, kin, took, whole=whole))

    def record_load(self, seen: Weighing, profile: str, fingerprint: str) -> None:
        """Record the memory of a load; the same id again replaces the earlier record."""
        self._learned.learn_memory(fingerprint, seen.replace(curve=()))
        self._write(rows.PUT_LOAD, rows.load_row(seen, profile, fingerprint))

    @property
    def contiguity(self) -> tuple[LoadContiguity, ...]:
        """Free blocks before and after the last loads, oldest first."""
        return self._learned.contiguity

    def record_contiguity(self, load: LoadContiguity) -> None:
        """Record the large free blocks before and after a load."""
        self._learned.learn_contiguity(load)
        self._write(rows.PUT_CONTIGUITY, rows.contiguity_row(load))

    def record_request(self, request: Request) -> None:
        """Record a finished request: figures and names, never content."""
        if request.key is not None:
            used = usage.usage_of_request(request)
            self._today.add(used[0], used[1], used[2] + used[3])
            self._pending.add_usage(used)
        self._pending.add_request(request)
        self._write_soon()

    def record_sample(self, sample: Sample) -> None:
        """Record the figures of a sample: the box's, and those of all engines."""
        at_once = self._seconds.begins(sample.at)
        self._pending.add_seconds(self._seconds.add(sample.at, measured_of(sample)))
        if not sample.engines:
            self._write_within(IDLE_FIGURES_S)
        else:
            self._write_within(0.0 if at_once else FIGURES_S)

    def record_notice(self, notice: Notice) -> None:
        """Record a notice that has its time."""
        self._write(rows.PUT_NOTICE, rows.notice_row(notice))

    def tokens_on(self, day: int, key: str) -> int:
        """Tokens that the access key has used today; `day` is today's number in UTC."""
        return self._today.tokens(key, day)

    def record_kill(self, kill: GuardKill) -> None:
        """Record a kill by the memory guard."""
        self._write(rows.PUT_KILL, rows.kill_row(kill))

    def record_incident(self, incident: Incident) -> None:
        """Record an incident; the same id again replaces the earlier record."""
        self._write(rows.PUT_INCIDENT, rows.incident_row(incident))

    def record_parked(self, profile: str, parked: Parked | None) -> None:
        """Record that a profile is parked and why; None ends it."""
        if parked is None:
            self._write(rows.END_PARKED, (profile,))
        else:
            self._write(rows.PUT_PARKED, rows.parked_row(profile, parked))

    def record_attached(self, profile: str, fingerprint: str | None) -> None:
        """Record that an attached server is in use; None ends it."""
        if fingerprint is None:
            self._write(rows.END_ATTACHED, (profile,))
        else:
            self._write(rows.PUT_ATTACHED, (profile, fingerprint))

    def _recall(self, kept: StoredState) -> None:
        """Take over the content of the database; what was recorded before counts as newer."""
        self.parked, self.attached, self.incidents, self.past = kept.parked, kept.attached, kept.incidents, kept.past
        older = Learned.of(kept.swaps, kept.loads, kept.contiguity)
        for key, day, tokens in kept.used:
            self._today.add(key, day, tokens)
        older.learn_newer(self._learned)
        self._learned = older

    @abstractmethod
    def _write(self, statement: str, row: rows.Row) -> None:
        """Write a row at once: whoever is told of it later finds it in the past, even if the daemon is killed now."""

    @abstractmethod
    def _write_soon(self) -> None:
        """Write the pending rows in a moment."""

    @abstractmethod
    def _write_within(self, seconds: float) -> None:
        """Write the pending rows within `seconds`."""
