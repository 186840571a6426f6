"""Store: the database of the daemon, written by one named thread.

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

from sparkdash.domain.event import Fact, Level, Notice
from sparkdash.store import rows, schema, transactions
from sparkdash.store.past import RecordedHistory, unavailable
from sparkdash.store.records import Records
from sparkdash.store.transactions import MarkJournal, Rows
from sparkdash.store.usage import UsageSums
from sparkdash.units import GIB

LOG = structlog.get_logger("sparkdash.store")
T = TypeVar("T")
TOGETHER_S = 0.1
"""Requests finished in this time share a transaction, at a third of the cost; a crash loses them at most."""

MOST_BYTES = GIB
AGAIN_S = 15.0
"""Pause before the next try after a failed open or write."""


class Store(Records):
    """Use `Store.opened`. Owned by one event loop."""

    def __init__(self, publish: Callable[[Fact], object], most_bytes: int = MOST_BYTES) -> None:
        super().__init__()
        self._publish = publish
        self._most_bytes = most_bytes
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sqlite")
        self._sums = UsageSums()
        self._path = Path()
        self._journal: MarkJournal | None = None
        self._left: list[tuple[str, rows.Row]] = []
        self._database: sqlite3.Connection | None = None
        self._begun = False
        """Whether the content of the database at its first opening is in memory."""
        self._writing = False
        self._troubled = False
        """Whether the last try to open or write failed; the timer begins the next one."""
        self._waiting = False
        """Whether more rows are handed over as soon as the thread is free."""
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        """Time of the timer by the loop's clock: the handle that uvloop gives for no delay does not tell it."""

    @classmethod
    @asynccontextmanager
    async def opened(
        cls, path: Path, publish: Callable[[Fact], object], most_bytes: int = MOST_BYTES
    ) -> AsyncIterator[Store]:
        """Open the store on this file, new or known; write all rows and close it at the end."""
        store = cls(publish, most_bytes)
        await store._open(path)
        try:
            yield store
        finally:
            await store._close()

    @property
    def history(self) -> RecordedHistory:
        return RecordedHistory(self.read)

    async def read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Run a query in the thread, after what was recorded before. Raises DaemonError `history_unavailable`."""
        if not self._troubled:
            if self._writing:  # the end of that write hands over what is pending now, before the query
                self._waiting = True
                await asyncio.get_running_loop().run_in_executor(self._thread, int)
            else:
                self._hand_over()
        if self._database is None:
            raise unavailable(f"The database {self._path} is not open.")
        try:
            return await asyncio.wrap_future(self._thread.submit(query, self._database))
        except sqlite3.Error as error:
            raise unavailable(f"The database {self._path} cannot be read: {error}.") from None

    async def _open(self, path: Path) -> None:
        self._path, self._journal = path, (journal := MarkJournal(path))
        loop = asyncio.get_running_loop()
        self._left = await loop.run_in_executor(self._thread, journal.read)
        try:
            self._begin(*await loop.run_in_executor(self._thread, transactions.read_database, path, self._left))
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
        self._begun, self._left = True, []
        self._in_database(0)
        self._recall(kept)

    def _write(self, statement: str, row: rows.Row) -> None:
        if self._journal is not None:
            self._journal.add(statement, row)
        self._pending.add(statement, row)
        if not self._troubled:
            self._hand_over()

    def _write_soon(self) -> None:
        self._write_within(TOGETHER_S)

    def _write_within(self, seconds: float) -> None:
        """Hand rows over in `seconds` at the latest; while writing fails, the next try does."""
        loop = asyncio.get_running_loop()
        if self._troubled or (self._timer is not None and self._due <= loop.time() + seconds):
            return
        self._no_timer()
        self._hand_over_in(seconds)

    def _hand_over_in(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self._timer, self._due = loop.call_later(seconds, self._hand_over), loop.time() + seconds

    def _hand_over(self) -> None:
        self._no_timer()
        self._waiting = self._writing
        if self._writing:
            return
        if self._database is None:
            self._in_thread(partial(transactions.read_database, self._path, self._left), self._opened)
        elif self._pending:
            taken = self._pending.take()
            work = partial(transactions.write_rows, self._database, self._sums, *taken, most_bytes=self._most_bytes)
            self._in_thread(work, partial(self._written, taken, self._journal.added if self._journal else 0))

    def _in_database(self, added: int) -> None:
        """Note that the database has the first `added` rows of the journal."""
        if self._journal is not None:
            self._journal.written(added)

    def _in_thread(self, work: Callable[[], T], done: Callable[[Future[T]], None]) -> None:
        self._writing = True
        loop = asyncio.get_running_loop()
        self._thread.submit(work).add_done_callback(lambda future: loop.call_soon_threadsafe(done, future))

    def _no_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _opened(self, work: Future[tuple[sqlite3.Connection, transactions.StoredState]]) -> None:
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
        """Delete the parked and attached profiles of an earlier daemon, as this daemon began without them."""
        ended = ((rows.END_PARKED, self.parked), (rows.END_ATTACHED, self.attached))
        self._pending.add_before([(statement, (name,)) for statement, names in ended for name in names])
        self.parked, self.attached = {}, {}

    def _written(self, taken: Rows, journalled: int, work: Future[None]) -> None:
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
            if error is not None:  # a fault of ours: a second try would fail as well
                LOG.error("records could not be written and are lost", exc_info=error)
            self._in_database(journalled)
            self._well_again()
            if self._waiting:
                self._hand_over()

    def _put_off(self, what: str, error: BaseException) -> None:
        self._pending.put_back(self._pending.take())
        if not self._troubled:
            self._troubled = True
            own = self._database is None and not schema.passes(error)
            fix = " Move the file away to start with a new one." if own else ""
            text = (
                f"{what} ({error}). Swaps, loads and requests stay in memory until it can be written; "
                f"the history pauses.{fix}"
            )
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
                write = partial(transactions.write_rows, self._database, self._sums, *self._pending.take())
                await loop.run_in_executor(self._thread, write)
                if self._journal is not None:
                    self._journal.written(self._journal.added)
            except sqlite3.Error as error:
                LOG.warning("the last records could not be written", why=str(error))
        if self._journal is not None:
            self._journal.close()
        if self._database is not None:
            self._thread.submit(self._database.close)
        await asyncio.to_thread(self._thread.shutdown)
