"""Usage of access keys by day of UTC: sums in memory, their rows, and reading them from another process."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from sparkdash.domain.request import Request

DAY_S = 86400
PUT = (
    "INSERT INTO key_usage VALUES (?, ?, ?, ?, ?) ON CONFLICT (key, day) DO UPDATE SET"
    " requests = requests + excluded.requests,"
    " prompt_tokens = prompt_tokens + excluded.prompt_tokens,"
    " completion_tokens = completion_tokens + excluded.completion_tokens"
)
ABSURD = 2**40
Used = tuple[str, int, int, int]
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


def day_of(at: float) -> int:
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
    day = day_of(request.finished_at or request.started_at)
    return (request.key or "", day, request.prompt_tokens or 0, request.completion_tokens or 0)


def summed(used: Iterable[Used]) -> list[tuple[str, int, int, int, int]]:
    """Add usage up to rows for PUT, one for each key and day, without implausible counts."""
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
