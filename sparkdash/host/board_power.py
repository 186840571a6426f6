"""BoardPower: power of the whole box, where a kernel module reports it.

Owns: finding and reading the hwmon sensor. A DGX Spark has none without the module `spark_hwmon`, whose label is
`sys_total`. Must not know: NVML, energy. All methods block for a file's read.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path

HWMON = Path("/sys/class/hwmon")
LABEL = "sys_total"
MICROWATTS = 1e6
AGAIN_S = 300.0
"""Pause between two searches for the sensor: a module may be loaded later."""


class BoardPower:
    """Reader of one sensor; `folder` is for tests."""

    def __init__(self, folder: Path = HWMON, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder = folder
        self._clock = clock
        self._sensor: Path | None = None
        self._search_at = -math.inf

    def find(self) -> bool:
        """Whether there is a sensor; searches at most every AGAIN_S."""
        if self._sensor is None and self._clock() >= self._search_at:
            self._search_at = self._clock() + AGAIN_S
            self._sensor = next((path for path in self._inputs() if path.exists()), None)
        return self._sensor is not None

    def read(self) -> float | None:
        """Read the power in watts; None without a sensor, or when it cannot be read."""
        if not self.find() or self._sensor is None:
            return None
        try:
            return int(self._sensor.read_text()) / MICROWATTS
        except (OSError, ValueError):
            self._sensor = None
            return None

    def _inputs(self) -> list[Path]:
        found = []
        for label in sorted(self._folder.glob("hwmon*/power*_label")):
            try:
                told = label.read_text().strip().lower()
            except OSError:
                continue
            if told == LABEL:
                found.append(label.with_name(label.name.replace("_label", "_input")))
        return found
