"""Choices of the user: the large figure and its chart, and what is kept from one start to the next."""

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sparkdash.domain.metric import Metric
from sparkdash.paths import read_small_text, replace_file
from sparkdash.tui.layout import Arrangement
from sparkdash.tui.lines.chart_window import DAY_S, HOUR_S
from sparkdash.tui.lines.charts import columns

if TYPE_CHECKING:
    from sparkdash.domain.history import Series

WINDOWS = ((0.0, "live"), (HOUR_S, "1h"), (DAY_S, "1d"))
"""Lengths in seconds with their names; 0 is the live chart, as long as its width allows."""


@dataclass(frozen=True, slots=True)
class HeroChoice:
    """Choice of the large figure, with the series that was read for it."""

    is_each: bool = False
    window_s: float = 0.0
    """Seconds of the chart; 0 is the live chart."""
    series: "Series | None" = None

    @property
    def metric(self) -> Metric:
        return Metric.DECODE_EACH if self.is_each else Metric.DECODE

    @property
    def window_name(self) -> str:
        return next(name for length, name in WINDOWS if length == self.window_s)

    def stepped(self, by: int) -> float:
        """Return the length of the next longer (1) or shorter (-1) window."""
        lengths = [length for length, _ in WINDOWS]
        return lengths[min(max(lengths.index(self.window_s) + by, 0), len(lengths) - 1)]

    def wants(self, profile: str, now: float) -> bool:
        """Whether a series must be read: there is none of this engine and window, or it lacks a newer bucket."""
        if self.window_s > 0 and self.series and self._fits(profile):
            return now >= self.series.until + max(self.series.step_s, 2.0)
        return self.window_s > 0

    def columns(self, profile: str, count: int, now: float) -> list[float | None]:
        """Return the highest value of each of `count` dot columns; None where nothing was measured."""
        if self.series is None or not self._fits(profile):
            return [None] * count
        return [one.high if one else None for one in columns(self.series, now - self.window_s, now, count)]

    def _fits(self, profile: str) -> bool:
        one = self.series
        return one is not None and one.profile == profile and one.figure == self.metric.value


def farthest(previous: float | None, low: float, high: float) -> float:
    """Return the extreme that lies farther from the value before, so that spikes and gaps survive."""
    return low if previous is not None and previous - low > high - previous else high


class KeptChoices:
    """Choices in one small file of the state folder; without a path nothing is kept."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path

    @property
    def theme(self) -> str | None:
        return self._read().get("theme")

    @property
    def arrangement(self) -> Arrangement:
        kept = self._read().get("arrangement")
        return Arrangement(kept) if kept in list(Arrangement) else Arrangement.ALL

    def _read(self) -> dict[str, str]:
        try:
            found = json.loads(read_small_text(self._path)) if self._path else {}
        except (OSError, ValueError, RecursionError):
            return {}
        return {key: one for key, one in found.items() if isinstance(one, str)} if isinstance(found, dict) else {}

    def keep(self, name: str, value: str) -> None:
        """Keep a choice, if its file can be written."""
        if self._path is not None:
            with suppress(OSError):
                self._path.parent.mkdir(parents=True, exist_ok=True)
                replace_file(self._path, json.dumps(self._read() | {name: value}).encode())
