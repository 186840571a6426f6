"""Periods as people type them: "90m", "7d", "2026-11-20", "now".

Owns: the forms. Times without a zone are the terminal's.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import NamedTuple

from sparkdash.errors import AdmissionError

_AGO = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)([smhdw])")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


class AskedPeriod(NamedTuple):
    """A period in Unix seconds, and the terminal's distance from UTC at its end."""

    since: float
    until: float
    offset_s: int


def parse_period(since: str, until: str, now: float) -> AskedPeriod:
    """Parse both ends.

    Raises:
        AdmissionError: code `period_invalid`.
    """
    begin, end = parse_moment(since, now), parse_moment(until, now)
    if begin >= end:
        raise AdmissionError(
            f"The period from {since!r} to {until!r} is empty.",
            code="period_invalid",
            hint="--since comes before --until: `--since 7d --until 1d`.",
        )
    offset = datetime.fromtimestamp(end).astimezone().utcoffset()
    return AskedPeriod(begin, end, int(offset.total_seconds()) if offset else 0)


def parse_moment(text: str, now: float) -> float:
    """Parse one end: a time ago, a date, or a date with a time. Raises AdmissionError."""
    if text == "now":
        return now
    if ago := _AGO.fullmatch(text):
        return max(now - float(ago[1]) * _UNITS[ago[2]], 0.0)
    try:
        return max(datetime.fromisoformat(text).timestamp(), 0.0)
    except (ValueError, OverflowError, OSError):
        raise AdmissionError(
            f"{text!r} is no time.",
            code="period_invalid",
            hint="Write 90m, 12h, 7d or 4w (ago), 2026-11-20, or 2026-11-20T14:00.",
        ) from None
