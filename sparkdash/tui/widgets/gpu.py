"""Panel about GPU and box: utilization, clock, temperature, power, memory pressure, swap.

Rule: figures that a GB10 does not support keep their place with "-".
"""

from __future__ import annotations

from sparkdash.domain.metric import Gpu, Memory
from sparkdash.tui.ink import EMPTY, Ink, Line, clip, dimmed, inked, join
from sparkdash.tui.mirror import View
from sparkdash.tui.widgets.panel import Panel
from sparkdash.units import DASH, gib, number, percent

ROOMY = 76
PRESSURE_LOOK = 0.05
PRESSURE_ACT = 0.20
"""Shares of time in which every task waited for memory (PSI full).

A few percent is noticeable; at a fifth the box thrashes.
"""


def _pair(name: str, value: str, ink: Ink = Ink.PLAIN) -> Line:
    return inked(f"{name} ", Ink.DIM) + inked(value, Ink.DIM if value == DASH else ink)


def _gpu(gpu: Gpu, stuck: bool) -> list[Line]:
    clock = None if gpu.sm_clock_mhz is None else gpu.sm_clock_mhz / 1000
    figures = [
        f"{percent(gpu.utilization):>5}",
        f"{number(clock, 2, ' GHz'):>8}",
        f"{number(gpu.temperature_c, 0, ' °C'):>5}",
        f"{number(gpu.power_w, 0, ' W'):>5}",
    ]
    inks = [Ink.DIM if figure.strip() == DASH else Ink.PLAIN for figure in figures]
    first, *rest = [inked(figure, ink) for figure, ink in zip(figures, inks, strict=True)]
    if stuck:
        return [inked("gpu ", Ink.DIM) + first, *rest, inked("✗ stuck low-power: unplug AC 60 s", Ink.BAD)]
    throttle = inked("⚠ slowed: " + ", ".join(gpu.throttle), Ink.WARN) if gpu.throttle else EMPTY
    return [inked("gpu ", Ink.DIM) + first, *rest, throttle]


def _memory(memory: Memory | None) -> list[Line]:
    pressure = memory.pressure if memory else None
    ink = Ink.PLAIN
    if pressure is not None and pressure >= PRESSURE_LOOK:
        ink = Ink.BAD if pressure >= PRESSURE_ACT else Ink.WARN
    used = memory.swap_used if memory else None
    return [_pair("pressure", percent(pressure, 1), ink), _pair("swap", gib(used) if used else number(used))]


def gpu_line(view: View, width: int) -> Line:
    """Format the row in `width` cells."""
    gpu = view.sample.gpu if view.sample else None
    memory = view.sample.memory if view.sample else None
    stuck = view.sample is not None and view.sample.low_power
    left = join(_gpu(gpu or Gpu(), stuck), inked("  "))
    between = inked("     " if width >= ROOMY else "  ")
    line = inked(" ") + join([left, *_memory(memory)], between)
    if view.sample is not None and view.sample_age_s is not None:
        line = dimmed(line)
    return clip(line, width)


class GpuRow(Panel):
    """Row of GPU and memory figures."""

    def draw(self, view: View, width: int, height: int) -> list[Line]:  # noqa: ARG002 - always one row
        """Return the row."""
        return [gpu_line(view, width)]
