"""Panel of a running measurement: progress, current cell, time left.

Owns: these rows. Rule: a run that has fallen silent is not shown: its process has died, and the box is free.
"""

from __future__ import annotations

from sparkdash.domain.event import Measuring
from sparkdash.tui.ink import EMPTY, EdgeText, Ink, Line, clip, frame, inked, justify
from sparkdash.tui.lines.spark import meter
from sparkdash.tui.mirror import View
from sparkdash.tui.widgets.panel import Panel
from sparkdash.units import duration

METER = 30


class MeasuringPanel(Panel):
    """Two framed rows; empty while nothing is measured."""

    def draw(self, view: View, width: int, height: int) -> list[Line]:  # noqa: ARG002 - as tall as needed
        """Return the framed rows."""
        now = view.measuring
        if now is None:
            return []
        title = EdgeText(inked("measuring ", Ink.PLAIN) + inked(now.run, Ink.STRONG))
        return frame([clip(row, width - 4) for row in (_bar(now), _where(now, width - 4))], width, title)


def _bar(now: Measuring) -> Line:
    done, rest = meter(now.share, METER)
    left = f"   about {duration(now.left_s)} left" if now.left_s is not None else "   no estimate yet"
    bar = inked(done, Ink.GOOD) + inked(rest, Ink.FAINT) + inked(f" {now.share * 100:3.0f} %", Ink.STRONG)
    return bar + inked(f"   {now.done} of {now.cells} cells") + inked(left, Ink.DIM)


def _where(now: Measuring, width: int) -> Line:
    what = inked(f" · {now.cell or now.doing}", Ink.PLAIN)
    where = inked(f"launch {now.launch} of {now.launches} · ", Ink.DIM) + inked(now.arm, Ink.STRONG) + what
    key = inked("is stopping", Ink.WARN) if now.ends else inked("e", Ink.STRONG) + inked(" ends it", Ink.DIM)
    return justify(where, key, width) if width else EMPTY
