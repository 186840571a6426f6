"""Text of a measured speed-up over the same model without speculation.

Owns: the day in the owner's time zone. Rule: a figure of a simulated run says so where it stands.
"""

from __future__ import annotations

import time

from sparkdash.domain.profile import SpeedUp
from sparkdash.tui.ink import EMPTY, Ink, Line, inked, length
from sparkdash.units import counted


def speed_up_line(found: SpeedUp | None, room: int) -> Line:
    """Format "1.36x plain 20 Nov" in at most `room` cells, without the day where that is too long; else nothing."""
    if found is None:
        return EMPTY
    told = inked(f"{found.ratio:.2f}x", Ink.PLAIN) + inked(" plain", Ink.DIM)
    told += inked(" SIM", Ink.WARN) if found.simulated else EMPTY
    dated = told + inked(f" {_day(found)}", Ink.DIM)
    return next((line for line in (dated, told) if length(line) <= room), EMPTY)


def speed_up_sentence(found: SpeedUp) -> str:
    """Say what was measured against what, and when."""
    simulated = "simulated: " if found.simulated else ""
    cells = counted(found.cells, "cell")
    return f"{simulated}{found.ratio:.2f}x as fast as {found.plain}, {cells} of run {found.run}, {_day(found)}"


def _day(found: SpeedUp) -> str:
    return time.strftime("%-d %b", time.localtime(found.measured_at))
