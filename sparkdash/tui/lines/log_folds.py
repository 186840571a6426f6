"""Runs of access lines in an engine's log, folded to one line each.

Owns: what an access line looks like. Rule: an answer that is not a success is named in the fold.

Pure.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_ACCESS = re.compile(
    r'"(?P<method>[A-Z]{3,7}) (?P<path>\S+) HTTP/[\d.]+" (?P<status>\d{3})'
    r"|request: (?P<verb>[A-Z]{3,7}) (?P<route>\S+) \S+ (?P<code>\d{3})"
)
"""Access lines of uvicorn (vLLM, SGLang) and of llama.cpp."""


class LogRow(NamedTuple):
    """Line of a log, or `count` access lines folded into one row."""

    text: str
    lines: int = 1
    odd: int = 0
    """Folded lines whose status is no success."""
    last_odd: str = ""

    @property
    def folded(self) -> bool:
        """Whether the row stands for several lines."""
        return self.lines > 1

    def shown(self) -> str:
        """Return the text of the row."""
        if not self.folded:
            return self.text
        status = f"{self.odd} not 2xx: {self.last_odd}" if self.odd else "all 2xx"
        return f"··· {self.lines} access lines, {status} ···"


def as_row(line: str) -> LogRow:
    """Make a row of one line."""
    found = _ACCESS.search(line)
    if found is None:
        return LogRow(line)
    method, path = found["method"] or found["verb"], found["path"] or found["route"]
    status = found["status"] or found["code"]
    odd = not status.startswith("2")
    return LogRow(line, odd=int(odd), last_odd=f"{method} {path} {status}" if odd else "")


def add_folded(rows: list[LogRow], line: str) -> None:
    """Append a line; an access line after access lines joins their row."""
    row = as_row(line)
    if rows and _is_access(row) and _is_access(rows[-1]):
        last = rows[-1]
        rows[-1] = last._replace(
            text=row.text, lines=last.lines + 1, odd=last.odd + row.odd, last_odd=row.last_odd or last.last_odd
        )
    else:
        rows.append(row)


def drop_first(rows: list[LogRow]) -> int:
    """Forget the oldest line; return the number of rows that went with it."""
    if rows and rows[0].folded:
        rows[0] = rows[0]._replace(lines=rows[0].lines - 1)
        return 0
    del rows[:1]
    return 1


def _is_access(row: LogRow) -> bool:
    return row.folded or bool(_ACCESS.search(row.text))
