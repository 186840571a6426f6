"""Store: the database of the daemon, written by one named thread.

Owns: the thread, and the part of the database that stays in memory. Must not know the use of the rows, nor what the
thread does (`transactions`).

Rule 1: callers never wait: writes are handed to the thread, reads answer from memory.
Rule 2: a database that cannot be opened or written never stops the daemon. One Notice reports it, rows stay in memory,
        and later tries write them.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

import structlog

from sparkdash.domain.engine import Parked
from sparkdash.domain.event import Fact, Level, Notice
from sparkdash.domain.incident import Incident
from sparkdash.domain.lease import Request
from sparkdash.domain.memory.contiguity import LoadContiguity
from sparkdash.domain.memory.footprint import Footprint, Weighing
from sparkdash.domain.memory.guard import GuardKill
from sparkdash.domain.swap import Swap, SwapOutcome, SwapPhase
from sparkdash.store import rows, schema, transactions, usage
from sparkdash.store.learned import Learned, Steps
from sparkdash.store.pending_rows import PendingRows
from sparkdash.store.transactions import Rows

LOG = structlog.get_logger("sparkdash.store")
T = TypeVar("T")
TOGETHER_S = 0.1
"""Delay that collects finished requests into one transaction, at a third of the cost of one each. Other rows are
written at once. A crash loses at most the requests of this time.
"""

AGAIN_S = 15.0
"""Pause before the next try after a failed open or write."""


class Store:
    """Use `Store.opened`. Owned by one event loop."""

    def __init__(self, publish: Callable[[Fact], object]) -> None:
        self._publish = publish
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sqlite")
        self._path = Path()
        self._database: sqlite3.Connection | None = None
        self._begun = False
        """Whether the content of the database at its first opening is in memory."""
        self._pending = PendingRows()
        self._writing = False
        """Whether the thread is busy."""
        self._troubled = False
        """Whether the last try to open or write failed; the timer begins the next one."""
        self._waiting = False
        """Whether more rows are handed over as soon as the thread is free."""
        self._timer: asyncio.TimerHandle | None = None
        """Begins the next write or the next try."""
        self._learned = Learned()
        self._today = usage.RecentTokens()
        self.parked: dict[str, Parked] = {}
        """Parked profiles of an earlier daemon, by name."""
        self.attached: dict[str, str] = {}
        """Attached servers that an earlier daemon used: profile and fingerprint."""
        self.incidents: list[Incident] = []
        """Incidents of earlier daemons, oldest first."""

    @classmethod
    @asynccontextmanager
    async def opened(cls, path: Path, publish: Callable[[Fact], object]) -> AsyncIterator[Store]:
        """Open the store on this file, new or known; write all rows and close it at the end."""
        store = cls(publish)
        await store._open(path)
        try:
            yield store
        finally:
            await store._close()

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
        """Record a finished swap. `fingerprint` is its target's; `kin` is shared by launches that load alike.

        A swap that is not `whole` began under an earlier daemon, and its remaining time teaches nothing.
        """
        took = sum(seconds for phase, seconds in swap.stage_s.items() if phase not in (SwapPhase.COPY, SwapPhase.DRAIN))
        if swap.outcome is SwapOutcome.DONE and whole:
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
        self._pending.add_request(rows.request_row(request))
        if self._timer is None:
            self._hand_over_in(TOGETHER_S)

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

    async def _open(self, path: Path) -> None:
        self._path = path
        try:
            self._begin(
                *await asyncio.get_running_loop().run_in_executor(self._thread, transactions.read_database, path)
            )
        except transactions.UNUSABLE as error:
            self._put_off(f"The database {path} cannot be used", error)

    def _begin(self, database: sqlite3.Connection, kept: transactions.StoredState) -> None:
        self._database = database
        if kept.exposed is not None:
            LOG.warning(
                "others could read the database; now only you can", path=str(self._path), mode=f"{kept.exposed:o}"
            )
        if self._begun:
            return  # opened again after a failure: memory has everything
        self._begun, self.parked, self.attached, self.incidents = True, kept.parked, kept.attached, kept.incidents
        older = Learned.of(kept.swaps, kept.loads, kept.contiguity)
        for key, day, tokens in kept.used:
            self._today.add(key, day, tokens)
        older.learn_newer(self._learned)
        self._learned = older

    def _write(self, statement: str, row: rows.Row) -> None:
        self._pending.add(statement, row)
        if not self._troubled:
            self._hand_over()

    def _hand_over_in(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._hand_over)

    def _hand_over(self) -> None:
        self._no_timer()
        self._waiting = self._writing
        if self._writing:
            return
        if self._database is None:
            self._in_thread(partial(transactions.read_database, self._path), self._opened)
        elif self._pending:
            taken = self._pending.take()
            self._in_thread(partial(transactions.write_rows, self._database, *taken), partial(self._written, taken))

    def _in_thread(self, work: Callable[[], T], done: Callable[[Future[T]], None]) -> None:
        self._writing = True
        loop = asyncio.get_running_loop()
        self._thread.submit(work).add_done_callback(lambda future: loop.call_soon_threadsafe(done, future))

    def _no_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _opened(self, work: Future[tuple[sqlite3.Connection, transactions.StoredState]]) -> None:
        """Take over the result of another try to open the database."""
        self._writing = False
        unknown = not self._begun
        try:
            self._begin(*work.result())
        except transactions.UNUSABLE as error:
            self._put_off(f"The database {self._path} cannot be used", error)
            return
        if unknown:
            self._forget_standing()
        if self._pending:
            self._hand_over()
        else:
            self._well_again()

    def _forget_standing(self) -> None:
        """Delete the parked and attached profiles of an earlier daemon, as this daemon began without them.

        This daemon's own records are written afterwards.
        """
        ended = ((rows.END_PARKED, self.parked), (rows.END_ATTACHED, self.attached))
        self._pending.add_before([(statement, (name,)) for statement, names in ended for name in names])
        self.parked, self.attached = {}, {}

    def _written(self, taken: Rows, work: Future[None]) -> None:
        self._writing = False
        error = work.exception()
        if isinstance(error, sqlite3.Error) and schema.passes(error):
            self._pending.put_back(taken)
            self._put_off("The database cannot be written now", error)
        elif isinstance(error, sqlite3.Error):
            if self._database is not None:
                self._thread.submit(self._database.close)
            self._database = None
            self._put_off("The database could not be written", error)
        else:
            self._well_again()
            if self._waiting:
                self._hand_over()

    def _put_off(self, what: str, error: BaseException) -> None:
        """Put writing off until the next try, which the timer begins."""
        self._pending.put_back(self._pending.take())
        if not self._troubled:
            self._troubled = True
            own = self._database is None and not schema.passes(error)
            mend = " Move the file away to start with a new one." if own else ""
            text = f"{what} ({error}). Swaps, loads and requests stay in memory until it can be written.{mend}"
            code = "store_unusable" if self._database is None else "store_waits"
            self._publish(Notice(level=Level.WARNING, code=code, text=text))
        self._no_timer()
        self._hand_over_in(AGAIN_S)

    def _well_again(self) -> None:
        if self._troubled:
            self._troubled = False
            self._publish(Notice(level=Level.INFO, code="store_written", text="The database is written again."))

    async def _close(self) -> None:
        loop = asyncio.get_running_loop()
        while self._writing:  # a failed write puts its rows back before the last try: its callback precedes ours
            await loop.run_in_executor(self._thread, int)
        self._no_timer()
        if self._database is not None:
            try:
                await loop.run_in_executor(self._thread, transactions.write_rows, self._database, *self._pending.take())
            except sqlite3.Error as error:
                LOG.warning("the last records could not be written", why=str(error))
        if self._database is not None:
            self._thread.submit(self._database.close)
        await asyncio.to_thread(self._thread.shutdown)
