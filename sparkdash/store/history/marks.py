"""Reading the marks of a period: swaps, kills, incidents and notices.

Owns: their words. Must not know threads.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from typing import Any

from sparkdash.domain.event import Level
from sparkdash.domain.history.answers import MarkKind, MarkList, TimelineMark
from sparkdash.domain.history.selections import MarkSelection

OPEN_INCIDENT = "open"
_SWAP_LEVELS = {"failed": Level.ERROR, "cancelled": Level.WARNING}


def read_marks(database: sqlite3.Connection, asked: MarkSelection) -> MarkList:
    """List the events of a period, oldest first; of more than `limit` the newest."""
    marks: list[TimelineMark] = []
    for query, parse in _SOURCES:
        given = {
            "since": asked.since,
            "until": asked.until,
            "profile": asked.profile,
            "limit": asked.limit + 1 if asked.visible is None else -1,
        }
        found = map(parse, database.execute(query, given))
        marks += (mark for mark in found if asked.visible is None or mark.profile in asked.visible)
    marks.sort(key=lambda mark: mark.at)
    return MarkList(marks=tuple(marks[-asked.limit :]), cut=len(marks) > asked.limit)


def _swap(row: tuple[Any, ...]) -> TimelineMark:
    at, profile, cause, outcome, stage_s, failure, record = row
    took = sum(json.loads(stage_s).values())
    what = f"{profile}, {cause}"
    if not profile:
        stopped = json.loads(record or "{}").get("evict", ())
        what = f"Stop of {' and '.join(stopped) or 'all engines'}, {cause}"
        profile = stopped[0] if len(stopped) == 1 else None
    ends = {"failed": f"failed after {took:.0f} s: {failure}", "cancelled": f"cancelled after {took:.0f} s"}
    return TimelineMark(
        kind=MarkKind.SWAP,
        at=at,
        until=at + took,
        profile=profile,
        level=_SWAP_LEVELS.get(outcome, Level.INFO),
        code=outcome,
        text=f"{what}: {ends.get(outcome, f'{took:.0f} s')}",
    )


def _kill(row: tuple[Any, ...]) -> TimelineMark:
    at, profile, reason = row
    return TimelineMark(kind=MarkKind.KILL, at=at, profile=profile, level=Level.ERROR, code="guard_kill", text=reason)


def _incident(row: tuple[Any, ...]) -> TimelineMark:
    began, profile, why, ended_at, how, note = row
    return TimelineMark(
        kind=MarkKind.INCIDENT,
        at=began,
        until=ended_at,
        profile=profile,
        level=Level.WARNING,
        code=how or OPEN_INCIDENT,
        text=f"{why} {note}".strip(),
    )


def _notice(row: tuple[Any, ...]) -> TimelineMark:
    at, level, code, text, profile = row
    return TimelineMark(kind=MarkKind.NOTICE, at=at, profile=profile, level=Level(level), code=code, text=text)


_STOPS = "profile = '' AND EXISTS (SELECT 1 FROM json_each(record, '$.evict') WHERE value = :profile)"
"""Swaps that only stop this profile, or this one and others."""
_PERIOD = (
    " WHERE {at} >= :since AND {at} < :until AND (:profile IS NULL OR profile = :profile{stops})"
    " ORDER BY {at} DESC LIMIT :limit"
)
_SOURCES: tuple[tuple[str, Callable[[tuple[Any, ...]], TimelineMark]], ...] = tuple(
    (f"SELECT {columns} FROM {table}" + _PERIOD.format(at=columns.partition(",")[0], stops=stops), parse)  # noqa: S608
    for table, columns, stops, parse in (
        ("swaps", "at, profile, cause, outcome, stage_s, failure, record", f" OR {_STOPS}", _swap),
        ("kills", "at, profile, reason", "", _kill),
        ("incidents", "began, profile, why, ended_at, how, note", "", _incident),
        ("notices", "at, level, code, text, profile", "", _notice),
    )
)
