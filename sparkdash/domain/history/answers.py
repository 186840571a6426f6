"""Answers about the past: series of a figure, usage by group, past requests, marks.

Times are Unix seconds, durations seconds. None is "not known" or "not measured", never zero.
Pure.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from sparkdash.domain.base import Frozen
from sparkdash.domain.event import Level
from sparkdash.domain.lease import Request


class FigureInfo(Frozen):
    """A recorded figure: name, label, unit and meaning."""

    name: str
    label: str
    unit: str
    """tok/s, share (0..1), bytes, W, Wh, C, MHz, s, requests, tokens, or bytes/s."""
    of: tuple[Literal["engine", "box"], ...]
    """Kinds of subject that have the figure: an engine (by its profile), a box (by its node), or both."""
    meaning: str


class RecordedSubject(Frozen):
    """Subject of recorded figures: an engine of a profile, or a whole box (then `profile` is empty)."""

    profile: str
    node: str
    first: float
    """Time of the oldest and of the newest record."""
    last: float


class FigureList(Frozen):
    """Figures that are recorded, and of which engines and boxes there are records."""

    figures: tuple[FigureInfo, ...] = ()
    subjects: tuple[RecordedSubject, ...] = ()


class Series(Frozen):
    """Values of a figure over a period, in buckets of `step_s` seconds.

    The arrays have one entry for each bucket of the period, oldest first. A bucket in which nothing was measured has
    None and a count of 0: a gap, never a zero.
    """

    figure: str
    unit: str
    profile: str
    """Profile of the engine; empty for a box."""
    node: str
    since: float
    until: float
    step_s: float
    start: tuple[float, ...] = ()
    """Beginning of each bucket; multiples of `step_s`."""
    min: tuple[float | None, ...] = ()
    mean: tuple[float | None, ...] = ()
    max: tuple[float | None, ...] = ()
    count: tuple[int, ...] = ()
    """Measurements in each bucket."""


class RecentSeries(Frozen):
    """Means of one figure over the last minutes, with five digits; None is a gap."""

    figure: str
    profile: str
    """Profile of the engine; empty for a box."""
    node: str
    mean: tuple[float | None, ...] = ()


class RecentFigures(Frozen):
    """Several figures over the last minutes, in the same buckets: what a sparkline begins with."""

    begin: float
    """Beginning of the first bucket."""
    step_s: float
    series: tuple[RecentSeries, ...] = ()


class Quantiles(Frozen):
    """Quantiles of a duration or a rate over many requests, each within 1 % of the true value."""

    count: int = 0
    p50: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None


class UsageTotals(Frozen):
    """Requests of one group, added up."""

    group: str
    """Profile, client or key; the hour ("2026-11-23 14:00") or the day ("2026-11-23"); "all" for everything."""
    start: float | None = None
    """Beginning of the hour or the day; None for other groups."""
    requests: int = 0
    """Ended requests, failed and abandoned ones included."""
    errors: int = 0
    """Requests that failed."""
    gone: int = 0
    """Requests whose client left."""
    prompt_tokens: int = 0
    """Prompt tokens, cached ones included."""
    cached_tokens: int = 0
    output_tokens: int = 0
    """Generated tokens, reasoning included."""
    reasoning_tokens: int = 0
    energy_wh: float | None = None
    """Energy of the requests whose energy is known; None without any."""
    waited: int = 0
    """Requests that waited for an engine."""
    wait_total_s: float = 0.0
    """Seconds that they waited, together."""
    wait_s: Quantiles = Quantiles()
    """Waits of the requests that waited."""
    ttft_s: Quantiles = Quantiles()
    """Time to first token, from sending the request to the engine."""
    decode_tok_s: Quantiles = Quantiles()
    """Decode rate of single requests."""


class UsageReport(Frozen):
    """Requests of a period, added up by group. The period is widened to whole hours."""

    since: float
    until: float
    by: Literal["profile", "client", "key", "hour", "day"]
    rows: tuple[UsageTotals, ...] = ()
    """Hours and days in their order; other groups by their requests, most first."""
    total: UsageTotals = UsageTotals(group="all")
    busy_wh: float | None = None
    """Energy of the box in the period while requests ran; None without a sensor, and for one profile or client."""
    idle_wh: float | None = None
    """The same while none ran."""


class PastRequests(Frozen):
    """Ended requests of the past."""

    requests: tuple[Request, ...] = ()
    next: str | None = None
    """Value of `after` that continues the list; None at its end."""


class MarkKind(StrEnum):
    """Kind of an event on the time line."""

    SWAP = "swap"
    KILL = "kill"
    """The memory guard killed an engine."""
    INCIDENT = "incident"
    """An engine stood still."""
    NOTICE = "notice"


class TimelineMark(Frozen):
    """An event on the time line of charts."""

    kind: MarkKind
    at: float
    until: float | None = None
    """End of a swap or an incident."""
    profile: str | None = None
    level: Level
    code: str
    """Outcome of a swap, "guard_kill", end of an incident ("open" without one), or the notice's code."""
    text: str


class MarkList(Frozen):
    """Events of a period, oldest first."""

    marks: tuple[TimelineMark, ...] = ()
    cut: bool = False
    """Whether older marks of the period were left out."""
