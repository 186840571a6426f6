"""Reading ended requests one by one, and the marks of a period.

Owns: filters, orders and pages. Must not know threads. Rule: rows are numbered in the order in which requests ended, so
the newest are found without an index, which would cost every request.
"""

from __future__ import annotations

import sqlite3
from typing import Any

from sparkdash.domain.history.answers import PastRequests
from sparkdash.domain.history.selections import RequestOrder, RequestSelection
from sparkdash.domain.lease import Request, RequestState
from sparkdash.errors import AdmissionError

REQUEST_COLUMNS = (
    "id, at, profile, client, route, state, status, finished_at, ttft_s, prompt_tokens, cached_tokens,"
    " completion_tokens, decode_tok_s, finish_reason, error, reasoning_tokens, node, key, granted_at, stream, energy_wh,"
    " completion_estimate"
)
_NAMES = [{"at": "started_at"}.get(name, name) for name in REQUEST_COLUMNS.replace(",", " ").split()]
ROW_BITS = 63
"""Bits of the greatest number of a row; the database refuses greater ones."""
_ORDERS: dict[RequestOrder, str] = {
    "newest": "rowid",
    "ttft": "ttft_s",
    "wait": "max(coalesce(granted_at, finished_at) - at, 0)",
    "duration": "finished_at - at",
    "output": "completion_tokens",
}


def parse_request(row: tuple[Any, ...]) -> Request:
    """Make the request of a row with REQUEST_COLUMNS. Raises ValueError for a row that no daemon wrote."""
    found = dict(zip(_NAMES, row, strict=True))
    return Request(**(found | {"state": RequestState(found["state"]), "stream": bool(found["stream"])}))


def read_requests(database: sqlite3.Connection, asked: RequestSelection) -> PastRequests:
    """List ended requests. Raises AdmissionError: `after` is none of an answer."""
    order = _ORDERS[asked.sort]
    where, given = _conditions(asked, order)
    query = (
        f"SELECT rowid, {order}, {REQUEST_COLUMNS} FROM requests WHERE {' AND '.join(where)}"  # noqa: S608 - constants
        f" ORDER BY {order} DESC{'' if order == 'rowid' else ', rowid DESC'} LIMIT :limit"
    )
    rows = database.execute(query, {**given, "limit": asked.limit + 1}).fetchall()
    more = len(rows) > asked.limit
    rows = rows[: asked.limit]
    return PastRequests(
        requests=tuple(parse_request(row[2:]) for row in rows),
        next=f"{rows[-1][1]!r}:{rows[-1][0]}" if more else None,
    )


def _conditions(asked: RequestSelection, order: str) -> tuple[list[str], dict[str, object]]:
    chosen = {name: found for name, found in _filters(asked).items() if found[1] is not None}
    where = [f"{order} IS NOT NULL", *(condition for condition, _ in chosen.values())]
    given = {name: value for name, (_, value) in chosen.items()}
    if asked.visible is not None:
        own = {f"own{number}": name for number, name in enumerate(sorted(asked.visible))}
        where.append(f"profile IN (:{', :'.join(own)})" if own else "FALSE")
        given |= own
    if asked.after is not None:
        where.append(f"({order}, rowid) < (:value, :row)")
        given |= _page(asked.after)
    return where, given


def _filters(asked: RequestSelection) -> dict[str, tuple[str, object]]:
    """Return each filter with its condition and value; None filters nothing."""
    status = asked.status
    return {
        "id": ("id = :id", asked.id),
        "since": ("finished_at >= :since", asked.since),
        "until": ("finished_at < :until", asked.until),
        "profile": ("profile = :profile", asked.profile),
        "client": ("client = :client", asked.client),
        "status": ("status = :status" if status and status.isdecimal() else "state = :status", status),
        "min_ttft": ("ttft_s >= :min_ttft", asked.min_ttft),
    }


def _page(after: str) -> dict[str, object]:
    """Parse `next` of an answer. Raises AdmissionError."""
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
