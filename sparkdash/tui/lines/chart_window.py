"""Window of a chart on the time line: its length, its end, zoom and pan."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

MINUTE_S, HOUR_S, DAY_S = 60.0, 3600.0, 86400.0
PERIODS: tuple[tuple[str, float], ...] = (
    ("10m", 10 * MINUTE_S), ("1h", HOUR_S), ("6h", 6 * HOUR_S), ("1d", DAY_S), ("1w", 7 * DAY_S), ("1mo", 30 * DAY_S),
    ("1y", 365 * DAY_S),
)  # fmt: skip
SHORTEST_S, LONGEST_S = MINUTE_S, 2 * 365 * DAY_S
_TICKS = (
    10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0, 7200.0, 10800.0, 21600.0, 43200.0, DAY_S, 2 * DAY_S,
    7 * DAY_S, 14 * DAY_S, 30 * DAY_S, 60 * DAY_S, 90 * DAY_S, 180 * DAY_S,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ChartWindow:
    """Period of `length_s` seconds that ends at `end` (Unix seconds), or now where `end` is None."""

    length_s: float = HOUR_S
    end: float | None = None

    def period(self, now: float) -> tuple[float, float]:
        end = now if self.end is None else self.end
        return end - self.length_s, end

    def stepped(self, by: int) -> ChartWindow:
        """Return the next longer (1) or shorter (-1) named period, with the same end."""
        lengths = [length for _, length in PERIODS]
        if by > 0:
            length = next((one for one in lengths if one > self.length_s * 1.01), lengths[-1])
        else:
            length = next((one for one in reversed(lengths) if one < self.length_s * 0.99), lengths[0])
        return replace(self, length_s=length)

    def zoomed(self, factor: float, at: float, now: float) -> ChartWindow:
        """Return the window with its length times `factor`; the share `at` (0..1) of its width keeps its time."""
        begin, end = self.period(now)
        length = min(max(self.length_s * factor, SHORTEST_S), LONGEST_S)
        fixed = begin + (end - begin) * at
        return self._ended(fixed + length * (1 - at), length, now)

    def panned(self, share: float, now: float) -> ChartWindow:
        """Return the window moved by a share of its length, never beyond now."""
        return self._ended(self.period(now)[1] + share * self.length_s, self.length_s, now)

    def _ended(self, end: float, length: float, now: float) -> ChartWindow:
        return ChartWindow(length, None if end >= now else end)

    @property
    def name(self) -> str:
        named = next((name for name, length in PERIODS if abs(length - self.length_s) < 1), None)
        return named or span_text(self.length_s)


def span_text(seconds: float) -> str:
    """Format a length of time: "45m", "3h", "12d"."""
    for unit, length in (("d", DAY_S), ("h", HOUR_S), ("m", MINUTE_S)):
        if seconds >= length:
            return f"{seconds / length:.3g}{unit}"
    return f"{seconds:.0f}s"


def moment_text(at: float, step_s: float, now: float | None = None) -> str:
    """Format a moment as exactly as a bucket of `step_s` seconds deserves; with its year if `now` is in another one."""
    form = "%a %d %b %H:%M:%S" if step_s < MINUTE_S else "%a %d %b %H:%M" if step_s < DAY_S else "%a %d %b %Y"
    found = time.localtime(at)
    if now is not None and step_s < DAY_S and found.tm_year != time.localtime(now).tm_year:
        form = form.replace("%b", "%b %Y")
    return time.strftime(form, found)


def ticks(begin: float, end: float, most: int) -> list[tuple[float, str]]:
    """Return at most `most` round moments within the period, each with its text."""
    step = next((one for one in _TICKS if (end - begin) / one <= max(most, 1)), _TICKS[-1])
    shift = time.localtime(end).tm_gmtoff if step >= HOUR_S else 0
    first = (int((begin + shift) // step) + 1) * step - shift
    form = "%H:%M:%S" if step < MINUTE_S else "%H:%M" if step < DAY_S else "%a %d" if step < 7 * DAY_S else "%d %b"
    count = int((end - first) // step) + 1 if end >= first else 0
    return [(at, time.strftime(form, time.localtime(at))) for at in (first + number * step for number in range(count))]
