"""Store: the database of the daemon, written by one named thread.

Rule 1: callers never wait: writes are handed to the thread, reads answer from memory.
Rule 2: a database that cannot be opened or written never stops the daemon. One Notice reports it, rows stay in memory,
        and later tries write them.
"""

import asyncio
import json
import sqlite3
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import cached_property, partial
from pathlib import Path
from statistics import median
from typing import TypeVar

from sparkdash.domain import memory
from sparkdash.domain.engine import Incident, Parked
from sparkdash.domain.event import Fact, Level, Notice
from sparkdash.domain.history import measured_of
from sparkdash.domain.memory import Footprint, GuardKill, Weighing
from sparkdash.domain.metric import Metric, Sample
from sparkdash.domain.request import Request
from sparkdash.domain.swap import Start, Step, Swap, SwapOutcome, SwapPhase
from sparkdash.log import LOG
from sparkdash.store import rows, schema, transactions, usage
from sparkdash.store.figures import SecondBuckets, SecondRow
from sparkdash.store.past import RecentPast, RecordedHistory, unavailable
from sparkdash.store.rows import SwapTimes, WeighedLoad
from sparkdash.store.transactions import Rows, StoredState
from sparkdash.store.usage import UsageSums
from sparkdash.units import GIB

LEARNED_FROM = 5
"""Swaps of one fingerprint that count: enough to outvote one cold page cache, few enough to follow a new disk."""
Steps = tuple[Step, ...]


class Learned:
    """Figures of the last swaps and loads by fingerprint; steps also by kin."""

    def __init__(self) -> None:
        self._took: defaultdict[str, deque[float]] = defaultdict(lambda: deque(maxlen=LEARNED_FROM))
        self._steps: defaultdict[tuple[str, bool | None], deque[Steps]] = defaultdict(
            lambda: deque(maxlen=LEARNED_FROM)
        )
        """By whether compile caches were empty; None: all."""
        self._images: defaultdict[str, set[str]] = defaultdict(set)
        """Ids of the images that each kin was started with."""
        self._starts: defaultdict[str, deque[str]] = defaultdict(lambda: deque(maxlen=LEARNED_FROM))
        """The last starts of each kin, as JSON."""
        self._loads: defaultdict[str, dict[str, Weighing]] = defaultdict(dict)

    @classmethod
    def of(cls, swaps: Iterable[SwapTimes], loads: Iterable[WeighedLoad]) -> "Learned":
        learned = cls()
        for swap in swaps:
            learned.learn_times(*swap)
        for load in loads:
            learned.learn_memory(*load)
        return learned

    def learn_times(
        self, fingerprint: str, kin: str, took_s: float, steps: Steps, image_id: str | None, start: str | None
    ) -> None:
        self._took[fingerprint].append(took_s)
        if image_id:
            self._images[kin].add(image_id)
        if start:
            self._starts[kin].append(start)
        for key in filter(None, (fingerprint, kin)):
            for caches_empty in {None, json.loads(start or "{}").get("caches_empty")} if steps else ():
                self._steps[key, caches_empty].append(steps)

    def learn_memory(self, fingerprint: str, seen: Weighing) -> None:
        """Add a load, complete or still running; one that does not count is ignored."""
        loads = self._loads[fingerprint]
        if seen.spoilt is None and seen.steady_bytes is not None:
            loads[seen.id] = seen  # a load that is reported again keeps its position
        for id_ in list(loads)[: -memory.LEARNED_FROM]:
            del loads[id_]

    def learn_newer(self, newer: "Learned") -> None:
        for key, times in newer._took.items():
            self._took[key].extend(times)
        for kind, steps in newer._steps.items():
            self._steps[kind].extend(steps)
        for kin, images in newer._images.items():
            self._images[kin] |= images
        for kin, starts in newer._starts.items():
            self._starts[kin].extend(starts)
        for key, loads in newer._loads.items():
            for seen in loads.values():
                self.learn_memory(key, seen)

    def expected_s(self, fingerprint: str) -> float | None:
        """Median time of the last swaps with this launch; None before the first."""
        times = self._took.get(fingerprint)
        return median(times) if times else None

    def steps(self, key: str, caches_empty: bool | None = None) -> tuple[Steps, ...]:
        """Steps of the last swaps of this fingerprint or kin, or of those with such caches; oldest first."""
        return tuple(self._steps.get((key, caches_empty), ()))

    def is_first_on(self, image_id: str, kin: str) -> bool | None:
        """Whether no swap to this kin had the image; None where earlier swaps do not tell theirs."""
        known = self._images.get(kin)
        return None if not kin or (known is None and (kin, None) in self._steps) else image_id not in (known or ())

    def starts(self, kin: str) -> tuple[Start, ...]:
        return tuple(map(Start.model_validate_json, reversed(self._starts.get(kin, ()))))

    def footprint(self, fingerprint: str) -> Footprint | None:
        """Memory of this launch; None before the first load that counts."""
        return memory.learn_footprint(list(self._loads.get(fingerprint, {}).values()))


HELD = 10_000
"""Rows that are held until the next try; beyond it the oldest are lost."""
SECONDS_HELD = 3_000
"""Rows of figures that are held: ten minutes of five engines. Figures are the first to be lost on a full disk."""


class PendingRows:
    """Requests, figures and all other rows, until the next transaction."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.others: list[tuple[str, rows.Row]] = []
        """Statements with their rows."""
        self.seconds: list[SecondRow] = []

    def __bool__(self) -> bool:
        return bool(self.requests or self.others or self.seconds)

    def take(self) -> Rows:
        taken = self.requests, self.others, self.seconds
        self.requests, self.others, self.seconds = [], [], []
        return taken

    def put_back(self, taken: Rows) -> None:
        requests = [*taken[0], *self.requests]
        lost, self.requests = usage.sums_of(requests[:-HELD]), requests[-HELD:]
        self.others = [*taken[1], *lost, *self.others][-HELD:]
        self.seconds = [*taken[2], *self.seconds][-SECONDS_HELD:]


FIGURES_S = 1.0
"""Delay of further samples of a second: a sample that begins a second is written at once."""
IDLE_FIGURES_S = 20.0
"""Delay that collects figures into one transaction while no engine works on a request."""
T = TypeVar("T")
TOGETHER_S = 0.1
"""Requests finished in this time share a transaction, at a third of the cost; a crash loses them at most."""

MOST_BYTES = GIB
AGAIN_S = 15.0
"""Pause before the next try after a failed open or write."""


class Store:
    """Use `Store.opened`. Owned by one event loop."""

    def __init__(self, publish: Callable[[Fact], object], most_bytes: int = MOST_BYTES) -> None:
        self._publish = publish
        self._most_bytes = most_bytes
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sqlite")
        self._sums = UsageSums()
        self._path = Path()
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
        self._pending = PendingRows()
        self._seconds = SecondBuckets()
        self.learned = Learned()
        """Times and memory of earlier launches."""
        self._today = usage.RecentTokens()
        self.parked: dict[str, Parked] = {}
        self.attached: dict[str, str] = {}
        """Attached servers that an earlier daemon used: profile and fingerprint."""
        self.incidents: list[Incident] = []
        self.past = RecentPast()
        """Requests, swaps and notices of earlier daemons; empty if the database could not be read at the start."""

    @cached_property
    def _loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    @classmethod
    @asynccontextmanager
    async def opened(
        cls, path: Path, publish: Callable[[Fact], object], most_bytes: int = MOST_BYTES
    ) -> "AsyncIterator[Store]":
        """Open the store on this file, new or known; write all rows and close it at the end."""
        store = cls(publish, most_bytes)
        await store._open(path)
        try:
            yield store
        finally:
            await store._close()

    def record_swap(self, swap: Swap, fingerprint: str, kin: str = "", *, whole: bool = True) -> None:
        """Record a finished swap. `kin` is shared by launches that load alike; one not `whole` teaches nothing."""
        took = sum(seconds for phase, seconds in swap.stage_s.items() if phase not in (SwapPhase.COPY, SwapPhase.DRAIN))
        if swap.outcome is SwapOutcome.DONE and whole and swap.target is not None:
            start = swap.start
            known = (start.image_id, start.model_dump_json()) if start else (None, None)
            self.learned.learn_times(fingerprint, kin, took, swap.steps, *known)
        self._write(rows.PUT_SWAP, rows.swap_row(swap, fingerprint, kin, took, whole=whole))

    def record_load(self, seen: Weighing, profile: str, fingerprint: str) -> None:
        self.learned.learn_memory(fingerprint, seen)
        self._write(rows.PUT_LOAD, rows.load_row(seen, profile, fingerprint))

    def record_request(self, request: Request) -> None:
        """Record a finished request: figures and names, never content."""
        if request.key is not None:
            day = usage.utc_day(request.finished_at or request.started_at)
            self._today.add(request.key, day, (request.prompt_tokens or 0) + (request.completion_tokens or 0))
        self._pending.requests.append(request)
        self._write_within(TOGETHER_S)

    def record_sample(self, sample: Sample) -> None:
        """Record the figures of a sample: the box's, and those of all engines."""
        begins = self._seconds.begins(sample.at)
        self._pending.seconds += self._seconds.add(sample.at, measured_of(sample))
        if not any(engine.figure(Metric.RUNNING).value for engine in sample.engines.values()):
            self._write_within(IDLE_FIGURES_S)
        else:
            self._write_within(0.0 if begins else FIGURES_S)

    def record_notice(self, notice: Notice) -> None:
        self._write(rows.PUT_NOTICE, rows.notice_row(notice))

    def tokens_on(self, day: int, key: str) -> int:
        """Tokens that the access key has used today; `day` is today's number in UTC."""
        return self._today.tokens(key, day)

    def record_kill(self, kill: GuardKill) -> None:
        self._write(rows.PUT_KILL, rows.kill_row(kill))

    def record_incident(self, incident: Incident) -> None:
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
        older = Learned.of(kept.swaps, kept.loads)
        for key, day, tokens in kept.used:
            self._today.add(key, day, tokens)
        older.learn_newer(self.learned)
        self.learned = older

    @property
    def history(self) -> RecordedHistory:
        return RecordedHistory(self.read)

    async def read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Run a query in the thread, after what was recorded before. Raises DaemonError `history_unavailable`."""
        if not self._troubled:
            if self._writing:  # the end of that write hands over what is pending now, before the query
                self._waiting = True
                await self._loop.run_in_executor(self._thread, int)
            else:
                self._hand_over()
        if self._database is None:
            raise unavailable(f"The database {self._path} is not open.")
        try:
            return await asyncio.wrap_future(self._thread.submit(query, self._database))
        except sqlite3.Error as error:
            raise unavailable(f"The database {self._path} cannot be read: {error}.") from None

    async def _open(self, path: Path) -> None:
        self._path = path
        try:
            self._begin(*await self._loop.run_in_executor(self._thread, transactions.read_database, path))
        except transactions.UNUSABLE as error:
            self._put_off(f"The database {path} cannot be used", error)

    def _begin(self, database: sqlite3.Connection, kept: transactions.StoredState) -> None:
        self._database = database
        if kept.exposed is not None:
            mode = f"{kept.exposed:o}"
            LOG.warning("others could read the database; now only you can", path=str(self._path), mode=mode)
        if self._begun:
            return  # opened again after a failure: memory has everything
        self._begun = True
        self._recall(kept)

    def _write(self, statement: str, row: rows.Row) -> None:
        """Write a row at once: whoever is told of it finds it in the past a moment later."""
        self._pending.others.append((statement, row))
        if not self._troubled:
            self._hand_over()

    def _write_within(self, seconds: float) -> None:
        """Hand rows over in `seconds` at the latest; while writing fails, the next try does."""
        if self._troubled or (self._timer is not None and self._due <= self._loop.time() + seconds):
            return
        self._no_timer()
        self._hand_over_in(seconds)

    def _hand_over_in(self, seconds: float) -> None:
        self._timer, self._due = self._loop.call_later(seconds, self._hand_over), self._loop.time() + seconds

    def _hand_over(self) -> None:
        self._no_timer()
        self._waiting = self._writing
        if self._writing:
            return
        if self._database is None:
            self._in_thread(partial(transactions.read_database, self._path), self._opened)
        elif self._pending:
            taken = self._pending.take()
            work = partial(transactions.write_rows, self._database, self._sums, *taken, most_bytes=self._most_bytes)
            self._in_thread(work, partial(self._written, taken))

    def _in_thread(self, work: Callable[[], T], done: Callable[[Future[T]], None]) -> None:
        self._writing = True
        self._thread.submit(work).add_done_callback(lambda future: self._loop.call_soon_threadsafe(done, future))

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
        if unknown:  # parked and attached profiles of an earlier daemon: this daemon began without them
            ended = ((rows.END_PARKED, self.parked), (rows.END_ATTACHED, self.attached))
            self._pending.others[:0] = [(statement, (name,)) for statement, names in ended for name in names]
            self.parked, self.attached = {}, {}
        if self._pending:
            self._hand_over()
        else:
            self._well_again()

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
            if error is not None:  # a fault of ours: a second try would fail as well
                LOG.exception("records could not be written and are lost", exc_info=error)
            self._well_again()
            if self._waiting:
                self._hand_over()

    def _put_off(self, what: str, error: BaseException) -> None:
        self._pending.put_back(self._pending.take())
        if not self._troubled:
            self._troubled = True
            own = self._database is None and not schema.passes(error)
            fix = " Move the file away to start with a new one." if own else ""
            stay = "Swaps, loads and requests stay in memory until it can be written; the history pauses."
            text = f"{what} ({error}). {stay}{fix}"
            code = "store_unusable" if self._database is None else "store_waits"
            self._publish(Notice(level=Level.WARNING, code=code, text=text))
        self._no_timer()
        self._hand_over_in(AGAIN_S)

    def _well_again(self) -> None:
        if self._troubled:
            self._troubled = False
            self._publish(Notice(level=Level.INFO, code="store_written", text="The database is written again."))

    async def _close(self) -> None:
        while self._writing:  # a failed write puts its rows back before the last try: its callback precedes ours
            await self._loop.run_in_executor(self._thread, int)
        self._no_timer()
        if self._database is not None:
            try:
                write = partial(transactions.write_rows, self._database, self._sums, *self._pending.take())
                await self._loop.run_in_executor(self._thread, write)
            except sqlite3.Error as error:
                LOG.warning("the last records could not be written", why=str(error))
        if self._database is not None:
            self._thread.submit(self._database.close)
        await asyncio.to_thread(self._thread.shutdown)
