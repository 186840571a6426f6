"""SQLite, in one named thread.

Owns: what is in memory of it, and the thread. Must not know what the rows are used for.

Rule 1: callers never wait: writing is handed to the thread, reading answers from memory.
Rule 2: a database that cannot be opened or written never stops serving: a Notice once, and on without. What passes by itself (a
full disk, another program's lock) is waited for: what was not written is kept, and written later.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from itertools import chain
from pathlib import Path
from statistics import median
from typing import NamedTuple

import structlog

from sparkdash.domain import footprint
from sparkdash.domain.engine import Parked
from sparkdash.domain.event import Fact, Level, Notice
from sparkdash.domain.footprint import Footprint, Weighing
from sparkdash.domain.guard import GuardKill
from sparkdash.domain.lease import Request
from sparkdash.domain.swap import Step, Swap, SwapOutcome, SwapPhase
from sparkdash.store import rows, schema, usage

LOG = structlog.get_logger("sparkdash.store")
LEARNED_FROM = 5
"""Swaps of one fingerprint that times are learned from: enough to pass over one cold page cache, few enough to follow a new disk."""

TOGETHER_S = 0.1
"""Finished requests wait so long for one another: one transaction costs a third of one for each, and the loop is left alone.
What else is kept is written at once. A transaction has what there was when it was begun, so that no more than this is ever lost."""
AT_ONCE = 32
"""Requests that one statement writes: around each of them the thread gives the interpreter's lock away and must get it again."""

AGAIN_S = 15.0
"""Pause before what could not be written is tried again."""
HELD = 10_000
"""Rows that are kept until then; beyond it the oldest are lost."""

Steps = tuple[Step, ...]
_Rows = tuple[list[rows.Row], list[tuple[str, rows.Row]]]
"""Requests, and everything else with its statement."""


class Store:
    """Use `Store.opened`. Owned by one event loop."""

    def __init__(self, publish: Callable[[Fact], object]) -> None:
        self._publish = publish
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sqlite")
        self._database: sqlite3.Connection | None = None
        self._requests: list[rows.Row] = []
        self._others: list[tuple[str, rows.Row]] = []
        """What is not handed to the thread yet; each with its statement, where it is no request."""
        self._used: list[usage.Used] = []
        """The same of those requests that came with a key."""
        self._writing = False
        """Is the thread at it?"""
        self._troubled = False
        """The last try failed, and the next may go well."""
        self._waiting = False
        """Is more to be handed over as soon as it is done?"""
        self._timer: asyncio.TimerHandle | None = None
        """Runs while finished requests wait to be handed over."""
        self._took: defaultdict[str, deque[float]] = defaultdict(lambda: deque(maxlen=LEARNED_FROM))
        self._steps: defaultdict[str, deque[Steps]] = defaultdict(lambda: deque(maxlen=LEARNED_FROM))
        """By fingerprint, and by kin."""
        self._loads: defaultdict[str, dict[str, Weighing]] = defaultdict(dict)
        """By fingerprint, then by id, oldest first; those that count."""
        self._today = usage.Today()
        self.parked: dict[str, Parked] = {}
        """By profile, as an earlier daemon left them."""

    @classmethod
    @asynccontextmanager
    async def opened(cls, path: Path, publish: Callable[[Fact], object]) -> AsyncIterator[Store]:
        """The store on this file, made when it is not there; closed, with all that was recorded, at the end."""
        store = cls(publish)
        await store._open(path)
        try:
            yield store
        finally:
            await store._close()

    def expected_s(self, fingerprint: str) -> float | None:
        """Median time of this launch's last swaps, the drain left out (it depends on who was served before); None before the first."""
        times = self._took.get(fingerprint)
        return median(times) if times else None

    def steps(self, key: str) -> tuple[Steps, ...]:
        """What the last swaps of this fingerprint, or of this kin, did and how long each step took; oldest first."""
        return tuple(self._steps.get(key, ()))

    def footprint(self, fingerprint: str) -> Footprint | None:
        """What this launch takes of the memory, from its last loads; None before the first that counts."""
        return footprint.footprint(list(self._loads.get(fingerprint, {}).values()))

    def record_swap(self, swap: Swap, fingerprint: str, kin: str = "", *, whole: bool = True) -> None:
        """Keep a swap that ended. `fingerprint` is its target's; `kin` is shared by launches that load about alike.

        Not `whole`: it began under an earlier daemon; nothing is learned from the time of its rest.
        """
        took = sum(seconds for phase, seconds in swap.stage_s.items() if phase is not SwapPhase.DRAIN)
        if swap.outcome is SwapOutcome.DONE and whole:
            self._learn_times(fingerprint, kin, took, swap.steps)
        self._write(rows.PUT_SWAP, rows.of_swap(swap, fingerprint, kin, took, whole=whole))

    def record_load(self, seen: Weighing, profile: str, fingerprint: str) -> None:
        """Keep what a load took; the same id again replaces what was kept of it."""
        self._learn_memory(fingerprint, seen.replace(curve=()))
        self._write(rows.PUT_LOAD, rows.of_load(seen, profile, fingerprint))

    def record_request(self, request: Request) -> None:
        """Keep a finished request: figures and names, never what was said."""
        if request.key is not None:
            used = usage.of_request(request)
            self._today.add(used[0], used[1], used[2] + used[3])
            self._used.append(used)
        self._requests.append(rows.of_request(request))
        if self._timer is None:
            self._hand_over_in(TOGETHER_S)

    def tokens_on(self, day: int, key: str) -> int:
        """What the access key of that name has used on that day of UTC, which is today."""
        return self._today.tokens(key, day)

    def record_kill(self, kill: GuardKill) -> None:
        """Keep what the memory guard did."""
        self._write(rows.PUT_KILL, rows.of_kill(kill))

    def record_parked(self, profile: str, parked: Parked | None) -> None:
        """Keep that a profile is parked, and why; None: it no longer is."""
        if parked is None:
            self._write(rows.END_PARKED, (profile,))
        else:
            self._write(rows.PUT_PARKED, rows.of_parked(profile, parked))

    def _learn_times(self, fingerprint: str, kin: str, took: float, steps: Steps) -> None:
        self._took[fingerprint].append(took)
        for key in filter(None, (fingerprint, kin)):
            if steps:
                self._steps[key].append(steps)

    def _learn_memory(self, fingerprint: str, seen: Weighing) -> None:
        loads = self._loads[fingerprint]
        if seen.spoilt is None and seen.steady_bytes is not None:
            loads[seen.id] = seen  # a load told again keeps its place
        for id_ in list(loads)[: -footprint.LEARNED_FROM]:
            del loads[id_]

    async def _open(self, path: Path) -> None:
        loop = asyncio.get_running_loop()
        try:
            self._database, kept = await loop.run_in_executor(self._thread, _read, path)
        except (sqlite3.Error, OSError, ValueError) as error:
            self._give_up(f"The database {path} cannot be used", error)
            return
        for swap in kept.swaps:
            self._learn_times(*swap)
        for load in kept.loads:
            self._learn_memory(*load)
        for key, day, tokens in kept.used:
            self._today.add(key, day, tokens)
        self.parked = kept.parked
        if kept.exposed is not None:
            LOG.warning("others could read the database; now only you can", path=str(path), mode=f"{kept.exposed:o}")

    def _write(self, statement: str, row: rows.Row) -> None:
        self._others.append((statement, row))
        if not self._troubled:
            self._hand_over()

    def _hand_over_in(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._hand_over)

    def _hand_over(self) -> None:
        self._no_timer()
        self._waiting = self._writing
        if self._writing or not (self._requests or self._others):
            return
        taken = self._taken()
        if self._database is not None:
            self._writing = True
            work = self._thread.submit(_write_all, self._database, *taken)
            loop = asyncio.get_running_loop()
            work.add_done_callback(lambda done: loop.call_soon_threadsafe(self._written, done.exception(), taken))

    def _taken(self) -> _Rows:
        """What waits, for the thread. What keys used is added up: one row for each of them, not for each of their requests."""
        taken = self._requests, [*self._others, *((usage.PUT, row) for row in usage.summed(self._used))]
        self._requests, self._others, self._used = [], [], []
        return taken

    def _no_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _written(self, error: BaseException | None, taken: _Rows) -> None:
        self._writing = False
        if self._database is None:
            return
        if isinstance(error, sqlite3.Error) and schema.passes(error):
            self._put_back(taken, error)
        elif isinstance(error, sqlite3.Error):
            self._thread.submit(self._database.close)
            self._database = None
            self._give_up("The database could not be written", error)
        else:
            self._well_again()
            if self._waiting:
                self._hand_over()

    def _put_back(self, taken: _Rows, error: sqlite3.Error) -> None:
        """Nothing of it was written. It is tried again after a while, with what has come until then."""
        self._requests = [*taken[0], *self._requests][-HELD:]
        self._others = [*taken[1], *self._others][-HELD:]
        if not self._troubled:
            self._troubled = True
            text = f"The database cannot be written now ({error}). Swaps, loads and requests are kept in memory and written once it can."
            self._publish(Notice(level=Level.WARNING, code="store_waits", text=text))
        self._no_timer()
        self._hand_over_in(AGAIN_S)

    def _well_again(self) -> None:
        if self._troubled:
            self._troubled = False
            self._publish(Notice(level=Level.INFO, code="store_written", text="The database is written again."))

    def _give_up(self, what: str, error: Exception) -> None:
        """For the rest of this life."""
        passes = "Once that is over, start the daemon anew."
        mend = passes if schema.passes(error) else "Move the file away to begin anew."
        text = f"{what} ({error}). sparkdash serves on, and does not record swaps, loads and requests. {mend}"
        self._publish(Notice(level=Level.WARNING, code="store_unusable", text=text))

    async def _close(self) -> None:
        loop = asyncio.get_running_loop()
        while (
            self._writing
        ):  # whatever has failed is put back before the last try; our callback is behind its own on the loop
            await loop.run_in_executor(self._thread, int)
        self._no_timer()
        if self._database is not None:
            try:
                await loop.run_in_executor(self._thread, _write_all, self._database, *self._taken())
            except sqlite3.Error as error:
                LOG.warning("what was last recorded could not be written", why=str(error))
        if self._database is not None:
            self._thread.submit(self._database.close)
        await asyncio.to_thread(self._thread.shutdown)


class _Kept(NamedTuple):
    """What a daemon begins with."""

    swaps: list[rows.Took]
    loads: list[rows.Held]
    used: list[tuple[str, int, int]]
    parked: dict[str, Parked]
    exposed: int | None
    """The mode that the file had, when others could read it."""


def _read(path: Path) -> tuple[sqlite3.Connection, _Kept]:
    database = schema.connect(path)
    try:
        return database, _Kept(
            swaps=[rows.took(row) for row in database.execute(rows.GET_SWAPS)],
            loads=[rows.held(row) for row in database.execute(rows.GET_LOADS)],
            used=database.execute(usage.GET_TOKENS).fetchall(),
            parked=dict(rows.parked(row) for row in database.execute(rows.GET_PARKED)),
            exposed=schema.close_to_others(path),
        )
    except BaseException:
        with suppress(sqlite3.Error):
            database.close()
        raise


def _write_all(
    database: sqlite3.Connection, requests: Sequence[rows.Row], others: Sequence[tuple[str, rows.Row]]
) -> None:
    """In the thread, as one transaction. What was written before a failure is kept, but nothing before one that passes; and a row
    that SQLite has no form for (an engine that counts 2**63 tokens) is passed over."""
    try:
        database.execute("BEGIN")
        try:
            for at in range(0, len(requests), AT_ONCE):
                _write_requests(database, requests[at : at + AT_ONCE])
            for statement, row in others:
                _write_one(database, statement, row)
        except sqlite3.Error as error:
            if database.in_transaction and not schema.passes(error):
                database.execute("COMMIT")
            raise
        database.execute("COMMIT")
    except sqlite3.Error:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise


def _write_one(database: sqlite3.Connection, statement: str, row: rows.Row) -> None:
    with suppress(OverflowError, UnicodeError):
        database.execute(statement, row)


def _write_requests(database: sqlite3.Connection, requests: Sequence[rows.Row]) -> None:
    try:
        database.execute(rows.put_requests(len(requests)), tuple(chain.from_iterable(requests)))
    except (OverflowError, UnicodeError):  # told before anything of it is written
        for row in requests:
            _write_one(database, rows.PUT_REQUEST, row)
