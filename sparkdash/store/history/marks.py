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
    at, profile, cause, outcome, stage_s, failure = row
    took = sum(json.loads(stage_s).values())
    what = f"{profile or 'Stop'}, {cause}"
    ends = {"failed": f"failed after {took:.0f} s: {failure}", "cancelled": f"cancelled after {took:.0f} s"}
    return TimelineMark(
        kind=MarkKind.SWAP,
        at=at,
        until=at + took,
        profile=profile or None,
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


_PERIOD = (
    "{at} >= :since AND {at} < :until AND (:profile IS NULL OR profile = :profile) ORDER BY {at} DESC LIMIT :limit"
)
_SOURCES: tuple[tuple[str, Callable[[tuple[Any, ...]], TimelineMark]], ...] = tuple(
    (f"SELECT {columns} FROM {table} WHERE {_PERIOD.format(at=columns.partition(',')[0])}", parse)  # noqa: S608
    for table, columns, parse in (
        ("swaps", "at, profile, cause, outcome, stage_s, failure", _swap),
        ("kills", "at, profile, reason", _kill),
        ("incidents", "began, profile, why, ended_at, how, note", _incident),
        ("notices", "at, level, code, text, profile", _notice),
    )
)
