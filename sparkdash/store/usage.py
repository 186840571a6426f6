"""Requests added up by hour, profile, client and key, and of these the tokens of each access key today.

Functions that get a database block; the store calls them in its thread.
"""

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from sparkdash.api.requests import UsageQuery
from sparkdash.domain.history import ENERGY_BUSY, ENERGY_IDLE, MOST_ROWS, UsageReport, UsageTotals
from sparkdash.domain.request import ASIDES, Request, RequestState
from sparkdash.domain.sketch import LogSketch, usual_quantiles
from sparkdash.store.figures import DAY_S, HOUR_S, Period
from sparkdash.store.series import read_increase

WAITED_S = 0.05
"""Time from arrival to the engine beyond which a request has waited."""
GROUPS = 200
"""Groups of one hour until which clients are told apart; further ones are added up as OTHER, by key."""
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
                group = profile, OTHER, request.key or ""
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


def delete_usage(database: sqlite3.Connection, before: int) -> None:
    database.execute("DELETE FROM usage_hours WHERE start < ?", (before,))


def read_usage(database: sqlite3.Connection, asked: UsageQuery, period: Period) -> UsageReport:
    begin, end = int(period[0] // HOUR_S) * HOUR_S, -int(-period[1] // HOUR_S) * HOUR_S
    if asked.by == "session":
        return _read_sessions(database, asked, begin, end)
    rows = [_totals(row, asked) for row in _summed(database, _GROUP_BY[asked.by], asked, begin, end)]
    rows.sort(key=lambda one: (one.start or 0.0, -one.requests, one.group))
    (total,) = _summed(database, ALL, asked, begin, end)
    whole = asked.profile is None and asked.client is None
    busy, idle = (read_increase(database, name, begin, end) if whole else None for name in (ENERGY_BUSY, ENERGY_IDLE))
    return UsageReport(
        since=float(begin),
        until=float(end),
        by=asked.by,
        rows=tuple(rows),
        total=_totals(total, UsageQuery()),
        busy_wh=busy,
        idle_wh=idle,
    )


ALL = "'all'"
_GROUP_BY = {
    "hour": "start",
    "day": f"(start + :offset) / {DAY_S} * {DAY_S} - :offset",
    "profile": "profile",
    "client": "client",
    "key": "key",
}
"""Expressions that tell the groups apart; days begin at midnight of whoever asks."""
_TOTALS = ", ".join([
    *(f"total({name})" for name in _ADDED), "sum(energy_wh)", *(f"sum_sketch({name})" for name in _SKETCHES)
])  # fmt: skip


def _summed(database: sqlite3.Connection, group: str, asked: UsageQuery, begin: int, end: int) -> list[tuple[Any, ...]]:
    wanted = dict(_wanted(asked))
    where = "".join(f" AND {column} = :{column}" for column in wanted)
    by_group = "" if group == ALL else " GROUP BY 1"  # all together are a row also where nothing was asked
    period = f"WHERE start >= :begin AND start < :end{where}{by_group}"
    query = f"SELECT {group}, {_TOTALS} FROM usage_hours {period}"  # noqa: S608 - constants
    given = {"begin": begin, "end": end, "offset": asked.offset_s, **wanted}
    return database.execute(query, given).fetchall()


def _totals(row: tuple[Any, ...], asked: UsageQuery) -> UsageTotals:
    group, *numbers, waited, wait_s, energy_wh, waits, ttfts, rates = row
    form = {"hour": "%Y-%m-%d %H:%M", "day": "%Y-%m-%d"}.get(asked.by)
    return UsageTotals(
        group=group if form is None else datetime.fromtimestamp(group + asked.offset_s, UTC).strftime(form),
        start=None if form is None else group,
        **_named(map(int, numbers)),
        energy_wh=energy_wh,
        waited=int(waited),
        wait_total_s=wait_s,
        wait_s=usual_quantiles(waits),
        ttft_s=usual_quantiles(ttfts),
        decode_tok_s=usual_quantiles(rates),
    )


_OF_SESSIONS = (
    "SELECT {}, min(at), max(finished_at), count(*), total(state = 'failed'), total(state = 'gone'),"
    " total(prompt_tokens), total(cached_tokens), total(completion_tokens), total(reasoning_tokens), sum(energy_wh)"
    " FROM requests WHERE session IS NOT NULL AND finished_at >= ? AND finished_at < ?{}"
)
_BY_SESSION = " GROUP BY session ORDER BY max(rowid) DESC LIMIT ?"


def _read_sessions(database: sqlite3.Connection, asked: UsageQuery, begin: int, end: int) -> UsageReport:
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


def _wanted(asked: UsageQuery) -> list[tuple[str, str]]:
    return [(column, name) for column, name in (("profile", asked.profile), ("client", asked.client)) if name]


DAYS_HELD = 2
"""Days in memory. More than today: after a clock that was ahead is set right, today's tokens must still count."""
_DAY = f"start / {DAY_S}"
_BEFORE = f"SELECT max(start) FROM usage_hours WHERE start < (SELECT max(start) FROM usage_hours) / {DAY_S} * {DAY_S}"  # noqa: S608
GET_TOKENS = (
    f"SELECT key, {_DAY}, prompt + output FROM usage_hours WHERE key <> ''"  # noqa: S608 - constants, as above
    f" AND start >= coalesce(({_BEFORE}), 0) / {DAY_S} * {DAY_S} ORDER BY start"
)
"""Tokens of the last two days with usage; older rows are not read."""
_SUM = "sum({0}), coalesce(sum({0}) FILTER (WHERE " + _DAY + " = :today), 0)"
_SUMS = ", ".join(_SUM.format(column) for column in ("requests", "prompt", "output"))


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


def read_key_usage(path: Path, keys: Iterable[str], today: int) -> dict[str, KeyUsage]:
    """Read the usage of these keys, even while a daemon serves; empty without a database. Raises sqlite3.Error."""
    if not path.exists():
        return {}
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=5.0)) as database:
        query = f"SELECT key, {_SUMS} FROM usage_hours WHERE key <> '' GROUP BY key"  # noqa: S608 - constants
        found = {key: KeyUsage(*sums) for key, *sums in database.execute(query, {"today": today})}
    return {key: found.get(key, KeyUsage()) for key in keys}
