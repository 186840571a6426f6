"""Energy: the box's energy since the daemon started, by whether requests ran.

Pure.
"""

from __future__ import annotations

from sparkdash.domain.base import Frozen


class Energy(Frozen):
    """Energy of the box since `since`, integrated from the power at each tick (trapezoids). Unix seconds, Wh."""

    sensor: str
    """Part of the box that the sensor measures: "GPU only"."""
    since: float
    busy_wh: float = 0.0
    """Energy while at least one request ran."""
    idle_wh: float = 0.0
    """Energy while none ran."""
    unknown_s: float = 0.0
    """Seconds without a reading of the power, in neither."""
