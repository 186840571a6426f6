"""Panel of the GPU's power and clock over the last minutes, side by side."""

from __future__ import annotations

from collections.abc import Sequence

from sparkdash.tui.history import STEP_S
from sparkdash.tui.ink import EMPTY, EdgeText, Ink, Line, clip, frame, inked, pad
from sparkdash.tui.lines.braille import filled_chart
from sparkdash.tui.mirror import View
from sparkdash.tui.widgets.panel import Panel
from sparkdash.units import duration, number

BETWEEN = 4
"""Cells between the two charts."""
MHZ_PER_GHZ = 1000.0
HEADROOM = 1.08
POWER, CLOCK = "gpu_power_w", "gpu_clock_mhz"


class PowerPanel(Panel):
    """Framed charts of power and clock, with the highest value of each; other boxes have rows of figures only."""

    def draw(self, view: View, width: int, height: int) -> list[Line]:
        """Return the framed charts."""
        rows, inner = max(height - 2, 0), width - 4
        cells = (inner - BETWEEN) // 2
        power = _charted(view, POWER, "power", " W", 0, cells, rows)
        clock = _charted(view, CLOCK, "clock", " GHz", 2, cells, rows)
        body = [pad(a, cells + BETWEEN) + b for a, b in zip(power, clock, strict=True)]
        span = inked(f"last {duration(2 * cells * STEP_S)}", Ink.DIM)
        return frame(
            [clip(line, inner) for line in body], width, EdgeText(inked("power and clock")), EdgeText(EMPTY, span)
        )


def _charted(view: View, figure: str, name: str, unit: str, digits: int, cells: int, rows: int) -> list[Line]:
    """Draw a figure of the box below its name, its value now and its highest one."""
    values = view.history.of_box(figure, 2 * cells, view.link_at)
    scaled = [value / MHZ_PER_GHZ if value is not None and figure == CLOCK else value for value in values]
    top = max((value for value in scaled if value is not None), default=None)
    bad = view.is_alerting("", figure)
    now = _last(scaled)
    told = inked(f"{name} ", Ink.DIM) + inked(number(now, digits, unit), Ink.BAD if bad else Ink.PLAIN)
    told += inked(f"  highest {number(top, digits, unit)}", Ink.DIM) if top is not None else EMPTY
    drawn = filled_chart(scaled, max(rows - 1, 0), (top or 1.0) * HEADROOM, edge=Ink.TRACE)
    return [told, *drawn][:rows]


def _last(values: Sequence[float | None]) -> float | None:
    """Return the value of now: that of the last bucket, or of the one before while the last has just begun."""
    return next((value for value in reversed(values[-2:]) if value is not None), None)
