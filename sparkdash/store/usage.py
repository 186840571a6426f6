"""Requests added up by hour, profile, client and key, hours to days, and the tokens of each access key by day of UTC.

Functions that get a database block; the store calls them in its thread.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from sparkdash.domain.history import ENERGY_BUSY, ENERGY_IDLE, MOST_ROWS, UsageReport, UsageSelection, UsageTotals
from sparkdash.domain.request import ASIDES, Request, RequestState
from sparkdash.domain.sketch import LogSketch, SketchSum
from sparkdash.store.figures import DAY_S, HOUR_S
from sparkdash.store.series import read_increase

USAGE_TABLES = ("usage_hours", "usage_days", "usage_profile_hours", "usage_profile_days", "usage_box_hours")
"""Requests by hour or day: by profile, client and key; by profile alone; all together."""
WAITED_S = 0.05
"""Time from arrival to the engine beyond which a request has waited."""
GROUPS = 200
"""Clients and keys of one hour that are told apart; further ones are added up as OTHER."""
OTHER = "other"
COLUMNS = (
    "start, profile, client, key, requests, errors, gone, prompt, cached, output, reasoning, energy_wh, waited, wait_s,"
    " waits, ttfts, rates"
)
_ADDED = ("requests", "errors", "gone", "prompt", "cached", "output", "reasoning", "waited", "wait_s")
_SKETCHES = ("waits", "ttfts", "rates")
_ENERGY = (
    "energy_wh = CASE WHEN excluded.energy_wh IS NULL THEN energy_wh"
    " ELSE coalesce(energy_wh, 0) + excluded.energy_wh END"
)
ADD = (
    f"INSERT INTO usage_hours ({COLUMNS}) VALUES ({', '.join('?' * 17)})"  # noqa: S608 - constants
    " ON CONFLICT (start, profile, client, key) DO UPDATE SET "
    + ", ".join(
        [
            *(f"{name} = {name} + excluded.{name}" for name in _ADDED),
            _ENERGY,
            *(f"{name} = merge_sketch({name}, excluded.{name})" for name in _SKETCHES),
        ]
    )
)
ABSURD = 2**40
"""Implausible number of tokens of one request; SQLite's integers end at 2**63."""


class UsageKey(NamedTuple):
    """Group of requests: beginning of the hour, profile, client, key."""

    start: int
    profile: str
    client: str
    key: str


class UsageSum:
    """Sum of one group."""

    __slots__ = ("energy_wh", "numbers", "rates", "ttfts", "wait_s", "waited", "waits")

    def __init__(self) -> None:
        self.numbers = [0] * 7
        self.energy_wh: float | None = None
        self.waited = 0
        self.wait_s = 0.0
        self.waits, self.ttfts, self.rates = LogSketch(), LogSketch(), LogSketch()

    def add(self, request: Request) -> None:
        numbers = self.numbers
        numbers[0] += 1
        numbers[1] += request.state is RequestState.FAILED
        numbers[2] += request.state is RequestState.GONE
        tokens = request.prompt_tokens, request.cached_tokens, request.completion_tokens, request.reasoning_tokens
        for place, number in enumerate(tokens, 3):
            if number and 0 < number < ABSURD:
                numbers[place] += number
        if request.energy_wh is not None:
            self.energy_wh = (self.energy_wh or 0.0) + request.energy_wh
        if request.ttft_s is not None:
            self.ttfts.add(request.ttft_s)
        if request.decode_tok_s is not None:
            self.rates.add(request.decode_tok_s)
        wait = wait_of(request)
        if wait > WAITED_S:
            self.waited += 1
            self.wait_s += wait
            self.waits.add(wait)

    def row(self, key: UsageKey) -> tuple[object, ...]:
        sketches = (sketch.pack() for sketch in (self.waits, self.ttfts, self.rates))
        return (*key, *self.numbers, self.energy_wh, self.waited, self.wait_s, *sketches)


class UsageSums:
    """Sums of the requests of one transaction; the clients and keys of the hour are remembered."""

    def __init__(self) -> None:
        self._sums: defaultdict[UsageKey, UsageSum] = defaultdict(UsageSum)
        self._hour = 0
        self._known: set[tuple[str, str, str]] = set()

    def add(self, request: Request) -> None:
        """Add an ended request; side requests, such as token counts, do not count."""
        if request.route in ASIDES:
            return
        ended = request.finished_at or request.started_at
        key = self._key(int(ended // HOUR_S) * HOUR_S, request)
        self._sums[key].add(request)

    def take(self) -> list[tuple[str, tuple[object, ...]]]:
        taken, self._sums = self._sums, defaultdict(UsageSum)
        return [(ADD, found.row(key)) for key, found in taken.items()]

    def _key(self, hour: int, request: Request) -> UsageKey:
        if hour != self._hour:
            self._hour, self._known = hour, set()
        group = request.profile, request.client, request.key or ""
        if group not in self._known:
            if len(self._known) >= GROUPS:
                profile = request.profile if any(known[0] == request.profile for known in self._known) else OTHER
                group = profile, OTHER, OTHER if request.key else ""
            self._known.add(group)
        return UsageKey(hour, *group)


def wait_of(request: Request) -> float:
    """Seconds from the arrival to the engine; of a request that never got one, to its end."""
    granted = request.granted_at or request.finished_at
    return max(granted - request.started_at, 0.0) if granted is not None else 0.0


def sums_of(requests: Iterable[Request]) -> list[tuple[str, tuple[object, ...]]]:
    """Add up requests of the past, as statements with their rows."""
    sums = UsageSums()
    for request in requests:
        sums.add(request)
    return sums.take()


_SUMMED = 7
"""Columns of plain sums after the four of the key."""
UsageRow = tuple[Any, ...]
K = TypeVar("K")


class SummedUsage:
    """Sum of the rows of one group; a value of it is made once, at the end."""

    __slots__ = ("energy_wh", "numbers", "sketches", "wait_s", "waited")

    def __init__(self) -> None:
        self.numbers = [0] * _SUMMED
        self.energy_wh: float | None = None
        self.waited = 0
        self.wait_s = 0.0
        self.sketches = (SketchSum(), SketchSum(), SketchSum())

    def add(self, row: UsageRow) -> None:
        self.numbers = [mine + one for mine, one in zip(self.numbers, row[4:11], strict=True)]
        if row[11] is not None:
            self.energy_wh = (self.energy_wh or 0.0) + row[11]
        self.waited += row[12]
        self.wait_s += row[13]
        for sketch, packed in zip(self.sketches, row[14:], strict=False):
            sketch.add(packed)

    def plus(self, other: SummedUsage) -> None:
        self.add((None,) * 4 + (*other.numbers, other.energy_wh, other.waited, other.wait_s))
        for sketch, more in zip(self.sketches, other.sketches, strict=True):
            sketch.plus(more)

    def totals(self, group: str, start: float | None) -> UsageTotals:
        waits, ttfts, rates = (sketch.usual_quantiles() for sketch in self.sketches)
        return UsageTotals(
            group=group,
            start=start,
            **_named(self.numbers),
            energy_wh=self.energy_wh,
            waited=self.waited,
            wait_total_s=self.wait_s,
            wait_s=waits,
            ttft_s=ttfts,
            decode_tok_s=rates,
        )

    def row(self, key: tuple[object, ...]) -> UsageRow:
        packed = (sketch.sketch().pack() for sketch in self.sketches)
        return (*key, *self.numbers, self.energy_wh, self.waited, self.wait_s, *packed)


class UsageSpan(NamedTuple):
    """Rows of one table, from `begin` on and before `end`."""

    table: str
    begin: int
    end: int


def group_rows(rows: Iterable[UsageRow], name: Callable[[UsageRow], K]) -> dict[K, SummedUsage]:
    groups: defaultdict[K, SummedUsage] = defaultdict(SummedUsage)
    for row in rows:
        groups[name(row)].add(row)
    return groups


def select_rows(
    database: sqlite3.Connection, span: UsageSpan, wanted: Iterable[tuple[str, str]] = ()
) -> Iterator[UsageRow]:
    """Read the rows of a span whose columns have the wanted values."""
    wanted = list(wanted)
    where = "".join(f" AND {column} = ?" for column, _ in wanted)
    query = f"SELECT {COLUMNS} FROM {span.table} WHERE start >= ? AND start < ?{where}"  # noqa: S608 - constants
    yield from database.execute(query, (span.begin, span.end, *(name for _, name in wanted)))


LATE_S = HOUR_S
"""Pause after the end of an hour or a day before it is added up."""
BOX_HOURS, PROFILE_HOURS, PROFILE_DAYS = -1, -HOUR_S, -DAY_S
"""Numbers under which `history_rolled` says how far these tables are complete."""


def complete_sums(database: sqlite3.Connection, now: int) -> None:
    """Add up the hours and days that are over."""
    days, hours = day_of(now - LATE_S), (now - LATE_S) // HOUR_S * HOUR_S
    _complete_days(database, days)
    _complete(database, UsageSpan("usage_days", 0, days), "usage_profile_days", PROFILE_DAYS)
    reached = _complete(database, UsageSpan("usage_hours", 0, hours), "usage_profile_hours", PROFILE_HOURS)
    _complete(database, UsageSpan("usage_profile_hours", 0, reached), "usage_box_hours", BOX_HOURS)


def delete_usage(database: sqlite3.Connection, before: int) -> None:
    for table in USAGE_TABLES:
        database.execute(f"DELETE FROM {table} WHERE start < ?", (before,))  # noqa: S608 - constants


def day_of(second: int) -> int:
    """Return the first full hour of the day in this box's own time."""
    midnight = datetime.fromtimestamp(second).astimezone().replace(hour=0, minute=0, second=0, microsecond=0)
    return -int(-midnight.timestamp() // HOUR_S) * HOUR_S


def _complete_days(database: sqlite3.Connection, end: int) -> None:
    """Add up hours to days of this box's own time; the first day may have begun before the last one that is there."""
    begin = _begin(database, "usage_days", DAY_S, end)
    if begin == end:
        return
    starts: dict[int, int] = {}

    def name(row: UsageRow) -> tuple[object, ...]:
        if row[0] not in starts:
            starts[row[0]] = max(day_of(row[0]), begin)
        return (starts[row[0]], *row[1:4])

    _put(database, "usage_days", group_rows(select_rows(database, UsageSpan("usage_hours", begin, end)), name))
    _set_complete(database, DAY_S, end)


def _complete(database: sqlite3.Connection, source: UsageSpan, table: str, number: int) -> int:
    """Add up the rows of each hour or day over clients and keys, or over all; return how far the table is complete."""
    begin = _begin(database, table, number, source.end)
    if begin == source.end:
        return begin
    rows = select_rows(database, UsageSpan(source.table, begin, source.end))
    of_box = number == BOX_HOURS
    _put(database, table, group_rows(rows, lambda row: (row[0], "" if of_box else row[1], "", "")))
    _set_complete(database, number, source.end)
    return source.end


def _begin(database: sqlite3.Connection, table: str, number: int, end: int) -> int:
    """Return how far the table is complete, without the rows after `end`."""
    known = database.execute("SELECT until FROM history_rolled WHERE step = ?", (number,)).fetchone()
    if known and known[0] > end:  # the clock was ahead: requests may still be added to that time
        database.execute(f"DELETE FROM {table} WHERE start >= ?", (end,))  # noqa: S608 - constants
        _set_complete(database, number, end)
        return end
    return int(known[0]) if known else 0


def _set_complete(database: sqlite3.Connection, number: int, end: int) -> None:
    database.execute("INSERT OR REPLACE INTO history_rolled VALUES (?, ?)", (number, end))


def _put(database: sqlite3.Connection, table: str, groups: Mapping[tuple[object, ...], SummedUsage]) -> None:
    places = ", ".join("?" * 17)
    database.executemany(
        f"INSERT OR REPLACE INTO {table} ({COLUMNS}) VALUES ({places})",  # noqa: S608 - constants
        [group.row(key) for key, group in groups.items()],
    )


class _Tables(NamedTuple):
    """Tables of an answer, with the numbers under which `history_rolled` says how far they are complete."""

    hours: str
    hours_number: int
    days: str
    days_number: int


_WHOLE = _Tables("usage_hours", 0, "usage_days", DAY_S)
_OF_PROFILES = _Tables("usage_profile_hours", PROFILE_HOURS, "usage_profile_days", PROFILE_DAYS)
_OF_BOX = _OF_PROFILES._replace(hours="usage_box_hours", hours_number=BOX_HOURS)


def read_usage(database: sqlite3.Connection, asked: UsageSelection) -> UsageReport:
    begin = int(asked.since // HOUR_S) * HOUR_S
    end = -int(-asked.until // HOUR_S) * HOUR_S
    if asked.by == "session":
        return _read_sessions(database, asked, begin, end)
    groups = group_rows(_rows(database, asked, _spans(database, begin, end, asked)), _grouping(asked))
    total = SummedUsage()
    if asked.by == "hour":  # days have the same requests in a twentieth of the rows
        for row in _rows(database, asked, _spans(database, begin, end, replace(asked, by="profile"))):
            total.add(row)
    else:
        for group in groups.values():
            total.plus(group)
    rows = [group.totals(name, start) for (name, start), group in groups.items()]
    rows.sort(key=lambda one: (one.start or 0.0, -one.requests, one.group))
    whole = asked.profile is None and asked.client is None
    busy, idle = (read_increase(database, name, begin, end) if whole else None for name in (ENERGY_BUSY, ENERGY_IDLE))
    return UsageReport(
        since=float(begin),
        until=float(end),
        by=asked.by,
        rows=tuple(rows),
        total=total.totals("all", None),
        busy_wh=busy,
        idle_wh=idle,
    )


_OF_SESSIONS = (
    "SELECT {}, min(at), max(finished_at), count(*), total(state = 'failed'), total(state = 'gone'),"
    " total(prompt_tokens), total(cached_tokens), total(completion_tokens), total(reasoning_tokens), sum(energy_wh)"
    " FROM requests WHERE session IS NOT NULL AND finished_at >= ? AND finished_at < ?{}"
)
_BY_SESSION = " GROUP BY session ORDER BY max(rowid) DESC LIMIT ?"


def _read_sessions(database: sqlite3.Connection, asked: UsageSelection, begin: int, end: int) -> UsageReport:
    """Add up the requests that are kept one by one."""
    wanted = _wanted(asked)
    where, given = "".join(f" AND {column} = ?" for column, _ in wanted), (begin, end, *(name for _, name in wanted))
    rows = database.execute(_OF_SESSIONS.format("session", where) + _BY_SESSION, (*given, MOST_ROWS))
    total = database.execute(_OF_SESSIONS.format("'all'", where), given).fetchone()
    return UsageReport(
        since=float(begin),
        until=float(end),
        by="session",
        rows=tuple(map(_session_totals, rows)),
        total=_session_totals(total),
    )


def _session_totals(row: Sequence[Any]) -> UsageTotals:
    group, start, end, *numbers, energy_wh = row
    return UsageTotals(group=group, start=start, end=end, **_named(map(int, numbers)), energy_wh=energy_wh)


def _named(numbers: Iterable[int]) -> dict[str, Any]:
    names = "requests errors gone prompt_tokens cached_tokens output_tokens reasoning_tokens"
    return dict(zip(names.split(), numbers, strict=True))


def _grouping(asked: UsageSelection) -> Callable[[UsageRow], tuple[str, int | None]]:
    """Return the function that names a row's group, with its beginning for groups of time."""
    offset = asked.offset_s
    if asked.by == "hour":
        return lambda row: (_moment(row[0], offset, "%Y-%m-%d %H:%M"), row[0])
    if asked.by == "day":
        return lambda row: _day_group(row[0], offset)
    column = {"profile": 1, "client": 2, "key": 3}[asked.by]
    return lambda row: (row[column], None)


@lru_cache(maxsize=4096)
def _day_group(start: int, offset: int) -> tuple[str, int]:
    begin = (start + offset) // DAY_S * DAY_S - offset
    return _moment(begin, offset, "%Y-%m-%d"), begin


@lru_cache(maxsize=4096)
def _moment(start: int, offset: int, form: str) -> str:
    return datetime.fromtimestamp(start + offset, UTC).strftime(form)


def _spans(database: sqlite3.Connection, begin: int, end: int, asked: UsageSelection) -> list[UsageSpan]:
    """Split a period into whole days that are added up, and the hours around them."""
    tables = _tables(asked)
    rolled = dict(database.execute("SELECT step, until FROM history_rolled").fetchall())
    first, last = end, end
    if asked.by != "hour" and tables.days_number in rolled:
        offset = asked.offset_s if asked.by == "day" else None
        first, last = _days(database, UsageSpan(tables.days, begin, end), rolled[tables.days_number], offset)
    spans = [
        *_hours(tables, begin, first, rolled),
        UsageSpan(tables.days, first, last),
        *_hours(tables, last, end, rolled),
    ]
    return [span for span in spans if span.begin < span.end]


def _tables(asked: UsageSelection) -> _Tables:
    """Return the tables with the fewest rows that tell apart what is asked for."""
    if asked.client is not None or asked.by in ("client", "key"):
        return _WHOLE
    whole = asked.profile is None and asked.by != "profile"
    return _OF_BOX if whole else _OF_PROFILES


def _hours(tables: _Tables, begin: int, end: int, rolled: dict[int, int]) -> list[UsageSpan]:
    """Return the spans of hours: from where they are not added up yet, those of each client."""
    until = max(begin, min(end, rolled.get(tables.hours_number, begin)))
    return [UsageSpan(tables.hours, begin, until), UsageSpan(_WHOLE.hours, until, end)]


def _days(database: sqlite3.Connection, period: UsageSpan, rolled: int, offset_s: int | None) -> tuple[int, int]:
    """Return the beginning and the end of the whole days of a period; twice its end without any."""
    query = f"SELECT DISTINCT start FROM {period.table} WHERE start >= ? AND start <= ? ORDER BY start"  # noqa: S608
    starts = [start for (start,) in database.execute(query, (period.begin, period.end))]
    if not starts:
        return period.end, period.end
    last = rolled if rolled <= period.end else starts[-1]
    if offset_s is not None and any((start + offset_s) % DAY_S for start in (*starts, last)):
        return period.end, period.end
    return starts[0], last


def _rows(database: sqlite3.Connection, asked: UsageSelection, spans: list[UsageSpan]) -> Iterator[UsageRow]:
    for span in spans:
        yield from select_rows(database, span, _wanted(asked))


def _wanted(asked: UsageSelection) -> list[tuple[str, str]]:
    return [(column, name) for column, name in (("profile", asked.profile), ("client", asked.client)) if name]


PUT_KEY_USAGE = (
    "INSERT INTO key_usage VALUES (?, ?, ?, ?, ?) ON CONFLICT (key, day) DO UPDATE SET"
    " requests = requests + excluded.requests,"
    " prompt_tokens = prompt_tokens + excluded.prompt_tokens,"
    " completion_tokens = completion_tokens + excluded.completion_tokens"
)
Used = tuple[str, int, int, int]
"""Key, day, prompt tokens and completion tokens of one request."""
DAYS_HELD = 2
"""Days in memory. More than today: after a clock that was ahead is set right, today's tokens must still count."""
_HELD = f"(SELECT day FROM key_usage GROUP BY day ORDER BY max(rowid) DESC LIMIT {DAYS_HELD})"  # noqa: S608 - constant
_TOKENS = "prompt_tokens + completion_tokens"
GET_TOKENS = f"SELECT key, day, {_TOKENS} FROM key_usage WHERE day IN {_HELD} ORDER BY rowid"  # noqa: S608 - constant
_SUM = "coalesce(sum({0}), 0), coalesce(sum({0}) FILTER (WHERE day = :today), 0)"
_SUMS = ", ".join(_SUM.format(column) for column in ("requests", "prompt_tokens", "completion_tokens"))


class KeyUsage(NamedTuple):
    """Usage of one key. Tokens are the engines' own counts; an answer that the client left has none."""

    requests: int = 0
    requests_today: int = 0
    prompt_tokens: int = 0
    prompt_tokens_today: int = 0
    completion_tokens: int = 0
    completion_tokens_today: int = 0


def utc_day(at: float) -> int:
    """Number of the day since 1970 in UTC."""
    return int(at // DAY_S)


class RecentTokens:
    """Tokens of each key on the last days with usage."""

    def __init__(self) -> None:
        self._days: dict[int, defaultdict[str, int]] = {}
        """Days by order of arrival, which differs from the calendar after the clock was set back."""

    def add(self, key: str, day: int, tokens: int) -> None:
        """Count tokens; a new day begins at 0."""
        self._days.setdefault(day, defaultdict(int))[key] += tokens
        while len(self._days) > DAYS_HELD:
            del self._days[next(iter(self._days))]

    def tokens(self, key: str, day: int) -> int:
        """Tokens of the key today; `day` is today's number."""
        return self._days[day].get(key, 0) if day in self._days else 0


def usage_of_request(request: Request) -> Used:
    day = utc_day(request.finished_at or request.started_at)
    return (request.key or "", day, request.prompt_tokens or 0, request.completion_tokens or 0)


def summed_by_key(used: Iterable[Used]) -> list[tuple[str, int, int, int, int]]:
    """Add usage up to rows for PUT_KEY_USAGE, one for each key and day, without implausible counts."""
    sums: defaultdict[tuple[str, int], list[int]] = defaultdict(lambda: [0, 0, 0])
    for key, day, prompt, completion in used:
        if max(prompt, completion) < ABSURD:
            total = sums[key, day]
            total[0] += 1
            total[1] += prompt
            total[2] += completion
    return [(key, day, total[0], total[1], total[2]) for (key, day), total in sums.items()]


def read_key_usage(path: Path, keys: Iterable[str], today: int) -> dict[str, KeyUsage]:
    """Read the usage of these keys, even while a daemon serves; empty without a database. Raises sqlite3.Error."""
    if not path.exists():
        return {}
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=5.0)) as database:
        (version,) = database.execute("PRAGMA user_version").fetchone()
        if version < 3:  # no daemon with keys has run yet
            return {}
        query = f"SELECT {_SUMS} FROM key_usage WHERE key = :key"  # noqa: S608 - columns are constants
        return {key: KeyUsage(*database.execute(query, {"key": key, "today": today}).fetchone()) for key in keys}
