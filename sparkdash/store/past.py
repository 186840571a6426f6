"""Reading the past: requests one by one, marks of a period, and what dashboards show of earlier daemons.

Functions that get a database block; the store calls them in its thread. Rows are numbered in the order in which
requests ended, so the newest are found without an index, which would cost every request.
"""

import json
import sqlite3
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from sparkdash.api.requests import MarkQuery, PastRequestQuery, RecentQuery, SeriesQuery, UsageQuery
from sparkdash.domain import history
from sparkdash.domain.event import Level, Notice
from sparkdash.domain.phrases import start_text
from sparkdash.domain.request import Request, RequestState
from sparkdash.domain.state import FIGURE_WINDOW, RECENT_NOTICES, RECENT_REQUESTS, RECENT_SWAPS, Figures
from sparkdash.domain.swap import Start, Swap, SwapPhase
from sparkdash.errors import AdmissionError, DaemonError
from sparkdash.store import series, usage
from sparkdash.store.figures import Period
from sparkdash.store.rows import REQUEST_COLUMNS, parse_request

ROW_BITS = 63
_ORDERS: dict[history.RequestOrder, str] = {
    "newest": "rowid",
    "ttft": "ttft_s",
    "wait": "max(coalesce(granted_at, finished_at) - at, 0)",
    "duration": "finished_at - at",
    "output": "completion_tokens",
}


def read_requests(
    database: sqlite3.Connection, asked: PastRequestQuery, *, request_id: str | None = None
) -> history.PastRequests:
    """List ended requests, or the one with this id. Raises AdmissionError: `after` is none of an answer."""
    order = _ORDERS[asked.sort]
    chosen = {name: found for name, found in _filters(asked, request_id).items() if found[1] is not None}
    where = [f"{order} IS NOT NULL", *(condition for condition, _ in chosen.values())]
    given = {name: value for name, (_, value) in chosen.items()}
    if asked.after is not None:
        where.append(f"({order}, rowid) < (:value, :row)")
        given |= _page(asked.after)
    query = (
        f"SELECT rowid, {order}, {REQUEST_COLUMNS} FROM requests WHERE {' AND '.join(where)}"  # noqa: S608 - constants
        f" ORDER BY {order} DESC{'' if order == 'rowid' else ', rowid DESC'} LIMIT :limit"
    )
    rows = database.execute(query, {**given, "limit": asked.limit + 1}).fetchall()
    more = len(rows) > asked.limit
    rows = rows[: asked.limit]
    return history.PastRequests(
        requests=tuple(parse_request(row[2:]) for row in rows), next=f"{rows[-1][1]!r}:{rows[-1][0]}" if more else None
    )


def _filters(asked: PastRequestQuery, request_id: str | None) -> dict[str, tuple[str, object]]:
    status = asked.status
    return {
        "id": ("id = :id", request_id),
        "since": ("finished_at >= :since", asked.since),
        "until": ("finished_at < :until", asked.until),
        "profile": ("profile = :profile", asked.profile),
        "client": ("client = :client", asked.client),
        "session": ("session = :session", asked.session),
        "status": ("status = :status" if status and status.isdecimal() else "state = :status", status),
        "min_ttft": ("ttft_s >= :min_ttft", asked.min_ttft),
    }


def _page(after: str) -> dict[str, object]:
    value, _, row = after.rpartition(":")
    try:
        found: dict[str, object] = {"value": float(value), "row": int(row)}
    except ValueError:
        found = {}
    if not found or int(row).bit_length() > ROW_BITS:
        raise AdmissionError(
            f"{after!r} continues no list of requests.",
            code="invalid_request",
            hint="`after` takes `next` of the answer before.",
        )
    return found


NEWEST = 5_000
"""Requests among which the last ones of each profile are looked for."""
_SPEEDS = """
    SELECT profile,
        CASE WHEN coalesce(before <= granted_at, 1) AND coalesce(after >= finished_at, 1) THEN decode_tok_s END,
        ttft_s, finished_at
    FROM (
        SELECT rowid AS row, *, lead(granted_at) OVER same AS after,
            max(finished_at) OVER (same ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
        FROM requests WHERE rowid > (SELECT max(rowid) FROM requests) - ? AND granted_at IS NOT NULL
        WINDOW same AS (PARTITION BY profile, node ORDER BY granted_at)
    ) WHERE state = ? ORDER BY row
"""
_SWAPS = "SELECT record FROM swaps WHERE record IS NOT NULL ORDER BY rowid DESC LIMIT ?"


class RecentPast(NamedTuple):
    """Ended requests, swaps and notices, newest first, and the speeds of each profile."""

    requests: tuple[Request, ...] = ()
    swaps: tuple[Swap, ...] = ()
    notices: tuple[Notice, ...] = ()
    figures: dict[str, Figures] = {}


def read_recent_past(database: sqlite3.Connection) -> RecentPast:
    """Read the newest records. Rows that cannot be read are left out."""
    requests = database.execute(
        f"SELECT {REQUEST_COLUMNS} FROM requests ORDER BY rowid DESC LIMIT ?",  # noqa: S608 - constants
        (RECENT_REQUESTS,),
    )
    notices = database.execute(
        "SELECT at, level, code, text, profile FROM notices ORDER BY rowid DESC LIMIT ?", (RECENT_NOTICES,)
    )
    return RecentPast(
        requests=tuple(_parsed_requests(requests)),
        swaps=tuple(_parsed_swaps(database.execute(_SWAPS, (RECENT_SWAPS,)))),
        notices=tuple(
            Notice(at=at, level=Level(level), code=code, text=text, profile=profile)
            for at, level, code, text, profile in notices
        ),
        figures=_figures(database),
    )


def _parsed_requests(rows: Iterable[tuple[Any, ...]]) -> Iterable[Request]:
    for row in rows:
        with suppress(ValueError):
            yield parse_request(row)


def _parsed_swaps(rows: Iterable[tuple[Any, ...]]) -> Iterable[Swap]:
    for (record,) in rows:
        with suppress(ValueError):  # an outcome or a field of another version
            yield Swap.model_validate_json(record)


def _figures(database: sqlite3.Connection) -> dict[str, Figures]:
    """Read the last speeds of each profile, and its best over all requests that are kept.

    Rates are those of requests beside which the engine served no other.
    """
    rates: dict[str, list[tuple[float | None, float | None, float | None]]] = {}
    newest = database.execute(_SPEEDS, (NEWEST, RequestState.DONE.value))
    for profile, rate, ttft, at in newest:
        rates.setdefault(profile, []).append((rate, ttft, at))
    bests = database.execute(
        "SELECT profile, max(decode_tok_s) FROM requests WHERE state = ? GROUP BY profile", (RequestState.DONE.value,)
    )
    loads = dict(database.execute("SELECT profile, stage_s FROM swaps WHERE outcome = 'done' ORDER BY rowid"))
    return {
        profile: Figures(
            rates=tuple(rate for rate, _, _ in rates.get(profile, ()) if rate is not None)[-FIGURE_WINDOW:],
            ttfts=tuple(ttft for _, ttft, _ in rates.get(profile, ()) if ttft is not None)[-FIGURE_WINDOW:],
            best=best,
            load_s=_load_s(loads.get(profile)),
            at=max((at for _, _, at in rates.get(profile, ()) if at is not None), default=None),
        )
        for profile, best in bests
    }


def _load_s(stages: str | None) -> float | None:
    if stages is None:
        return None
    found: dict[str, float] = json.loads(stages)
    parts = [found[phase.value] for phase in (SwapPhase.CREATE, SwapPhase.LOAD, SwapPhase.WARM) if phase.value in found]
    return sum(parts) if parts else None


OPEN_INCIDENT = "open"
_SWAP_LEVELS = {"failed": Level.ERROR, "cancelled": Level.WARNING}


def read_marks(database: sqlite3.Connection, asked: MarkQuery, period: Period) -> history.MarkList:
    """List the events of a period, oldest first; of more than `limit` the newest."""
    marks: list[history.TimelineMark] = []
    for query, parse in _SOURCES:
        given = {"since": period[0], "until": period[1], "profile": asked.profile, "limit": asked.limit + 1}
        marks += map(parse, database.execute(query, given))
    marks.sort(key=lambda mark: mark.at)
    return history.MarkList(marks=tuple(marks[-asked.limit :]), cut=len(marks) > asked.limit)


def _swap(row: tuple[Any, ...]) -> history.TimelineMark:
    at, profile, cause, outcome, stage_s, failure, record = row
    took = sum(json.loads(stage_s).values())
    what = f"{profile}, {cause}"
    if not profile:
        stopped = json.loads(record or "{}").get("evict", ())
        what = f"Stop of {' and '.join(stopped) or 'all engines'}, {cause}"
        profile = stopped[0] if len(stopped) == 1 else None
    start = json.loads(record or "{}").get("start")
    longest = f", mostly {start_text(Start.model_validate(start))}" if start else ""
    ends = {"failed": f"failed after {took:.0f} s: {failure}", "cancelled": f"cancelled after {took:.0f} s"}
    return history.TimelineMark(
        kind=history.MarkKind.SWAP,
        at=at,
        until=at + took,
        profile=profile,
        level=_SWAP_LEVELS.get(outcome, Level.INFO),
        code=outcome,
        text=f"{what}: {ends.get(outcome, f'{took:.0f} s{longest}')}",
    )


def _kill(row: tuple[Any, ...]) -> history.TimelineMark:
    at, profile, reason = row
    return history.TimelineMark(
        kind=history.MarkKind.KILL, at=at, profile=profile, level=Level.ERROR, code="guard_kill", text=reason
    )


def _incident(row: tuple[Any, ...]) -> history.TimelineMark:
    began, profile, why, ended_at, how, note = row
    return history.TimelineMark(
        kind=history.MarkKind.INCIDENT,
        at=began,
        until=ended_at,
        profile=profile,
        level=Level.WARNING,
        code=how or OPEN_INCIDENT,
        text=f"{why} {note}".strip(),
    )


def _notice(row: tuple[Any, ...]) -> history.TimelineMark:
    at, level, code, text, profile = row
    return history.TimelineMark(
        kind=history.MarkKind.NOTICE, at=at, profile=profile, level=Level(level), code=code, text=text
    )


_STOPS = "profile = '' AND EXISTS (SELECT 1 FROM json_each(record, '$.evict') WHERE value = :profile)"
"""Swaps that only stop this profile, or this one and others."""
_PERIOD = (
    " WHERE {at} >= :since AND {at} < :until AND (:profile IS NULL OR profile = :profile{stops})"
    " ORDER BY {at} DESC LIMIT :limit"
)
_SOURCES: tuple[tuple[str, Callable[[tuple[Any, ...]], history.TimelineMark]], ...] = tuple(
    (f"SELECT {columns} FROM {table}" + _PERIOD.format(at=columns.partition(",")[0], stops=stops), parse)  # noqa: S608
    for table, columns, stops, parse in (
        ("swaps", "at, profile, cause, outcome, stage_s, failure, record", f" OR {_STOPS}", _swap),
        ("kills", "at, profile, reason", "", _kill),
        ("incidents", "began, profile, why, ended_at, how, note", "", _incident),
        ("notices", "at, level, code, text, profile", "", _notice),
    )
)


class RecordedHistory:
    """Answers about the past. `run` runs a query in the store's thread, `clock` gives Unix seconds."""

    def __init__(
        self,
        run: Callable[[Callable[[sqlite3.Connection], Any]], Awaitable[Any]],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._run = run
        self._clock = clock

    async def figures(self) -> history.FigureList:
        return await self._run(series.read_figures)  # type: ignore[no-any-return]

    async def series(self, asked: SeriesQuery, period: Period) -> history.Series:
        read = partial(series.read_series, asked=asked, period=period, now=self._clock())
        return await self._run(read)  # type: ignore[no-any-return]

    async def recent(self, asked: RecentQuery, until: float) -> history.RecentFigures:
        return await self._run(partial(series.read_recent, asked=asked, until=until))  # type: ignore[no-any-return]

    async def usage(self, asked: UsageQuery, period: Period) -> history.UsageReport:
        return await self._run(partial(usage.read_usage, asked=asked, period=period))  # type: ignore[no-any-return]

    async def requests(self, asked: PastRequestQuery, *, request_id: str | None = None) -> history.PastRequests:
        return await self._run(partial(read_requests, asked=asked, request_id=request_id))  # type: ignore[no-any-return]

    async def marks(self, asked: MarkQuery, period: Period) -> history.MarkList:
        return await self._run(partial(read_marks, asked=asked, period=period))  # type: ignore[no-any-return]


def unavailable(what: str) -> DaemonError:
    return DaemonError(
        what, code="history_unavailable", status=503, hint="The daemon tries again by itself; its notices say why."
    )
