"""Selections: which part of the past is asked for.

In all of them `visible` holds the profiles that the caller may see; None: all. Times are Unix seconds.
Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

UsageGroup = Literal["profile", "client", "key", "hour", "day"]
RequestOrder = Literal["newest", "ttft", "wait", "duration", "output"]
Visible = frozenset[str] | None

MOST_POINTS = 5_000
"""Buckets of one series."""
MOST_ROWS = 1_000
"""Requests or marks of one answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesSelection:
    """Choice of a figure of an engine (`profile`) or of a box (no profile), in about `points` buckets."""

    figure: str
    since: float
    until: float
    profile: str = ""
    node: str
    points: int
    visible: Visible = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentSelection:
    """Figures of all engines and of the box over a few minutes, in buckets of `step_s` seconds."""

    figures: tuple[str, ...]
    since: float
    until: float
    step_s: float
    visible: Visible = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageSelection:
    """Requests of a period by group. `offset_s` moves the beginning of days from UTC, eastward positive."""

    by: UsageGroup
    since: float
    until: float
    profile: str | None = None
    client: str | None = None
    offset_s: int = 0
    visible: Visible = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSelection:
    """Ended requests of a period; `after` continues an earlier answer."""

    since: float | None = None
    until: float | None = None
    profile: str | None = None
    client: str | None = None
    status: str | None = None
    """done, failed, gone, or an HTTP status."""
    min_ttft: float | None = None
    sort: RequestOrder = "newest"
    limit: int = 100
    after: str | None = None
    id: str | None = None
    visible: Visible = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkSelection:
    """Events of a period, of one profile or of all; at most `limit`, the newest."""

    since: float
    until: float
    profile: str | None = None
    limit: int
    visible: Visible = None
