"""Panel about GPU and box: utilization, clock, temperature, power, memory pressure, swap.

Rule: figures that a GB10 does not support keep their place with "-".
"""

from collections.abc import Sequence

from sparkdash.domain.metric import Gpu, Memory
from sparkdash.domain.node import LOCAL
from sparkdash.domain.phrases import is_silent
from sparkdash.tui.history import STEP_S
from sparkdash.tui.layout import is_compact
from sparkdash.tui.lines.charts import filled_chart
from sparkdash.tui.lines.node_lines import node_name
from sparkdash.tui.mirror import View
from sparkdash.tui.text import EMPTY, EdgeText, Line, Style, clip, dimmed, frame, join, length, pad, styled
from sparkdash.tui.widgets.memory import SHORT_ROWS
from sparkdash.tui.widgets.panel import Panel
from sparkdash.units import DASH, duration, gib, number, percent

BETWEEN = 4
MHZ_PER_GHZ = 1000.0
HEADROOM = 1.08
POWER, CLOCK = "gpu_power_w", "gpu_clock_mhz"


class PowerPanel(Panel):
    """Framed charts of power and clock, with the highest value of each; other boxes have rows of figures only."""

    def draw(self, view: View, width: int, height: int) -> list[Line]:
        rows, inner = max(height - 2, 0), width - 4
        cells = (inner - BETWEEN) // 2
        power = _charted(view, POWER, "power", " W", 0, cells, rows)
        clock = _charted(view, CLOCK, "clock", " GHz", 2, cells, rows)
        body = [pad(a, cells + BETWEEN) + b for a, b in zip(power, clock, strict=True)]
        span = styled(f"last {duration(2 * cells * STEP_S)}", Style.DIM)
        title = EdgeText(styled("power and clock"))
        return frame([clip(line, inner) for line in body], width, title, EdgeText(EMPTY, span))


def _charted(view: View, figure: str, name: str, unit: str, digits: int, cells: int, rows: int) -> list[Line]:
    values = view.history.last("", figure, 2 * cells, view.known_at)
    scaled = [value / MHZ_PER_GHZ if value is not None and figure == CLOCK else value for value in values]
    top = max((value for value in scaled if value is not None), default=None)
    now = _last(scaled)
    told = styled(f"{name} ", Style.DIM) + styled(number(now, digits, unit), Style.PLAIN)
    told += styled(f"  highest {number(top, digits, unit)}", Style.DIM) if top is not None else EMPTY
    drawn = filled_chart(scaled, max(rows - 1, 0), (top or 1.0) * HEADROOM, edge=Style.TRACE)
    return [told, *drawn][:rows]


def _last(values: Sequence[float | None]) -> float | None:
    """Return the value of now: that of the last bucket, or of the one before while the last has just begun."""
    return next((value for value in reversed(values[-2:]) if value is not None), None)


NO_GPU = Gpu.model_construct()
ROOMY = 76
PRESSURE_LOOK, PRESSURE_ACT = 0.05, 0.20
"""Shares of time in which every task waited for memory (PSI full): noticeable, and at a fifth the box thrashes."""


def _pair(name: str, value: str, style: Style = Style.PLAIN) -> Line:
    return styled(f"{name} ", Style.DIM) + styled(value, Style.DIM if value == DASH else style)


def _gpu(gpu: Gpu, stuck: bool) -> list[Line]:
    clock = None if gpu.sm_clock_mhz is None else gpu.sm_clock_mhz / 1000
    figures = [
        f"{percent(gpu.utilization):>5}",
        f"{number(clock, 2, ' GHz'):>8}",
        f"{number(gpu.temperature_c, 0, ' °C'):>5}",
        f"{number(gpu.power_w, 0, ' W'):>5}",
    ]
    first, *rest = [styled(figure, Style.DIM if figure.strip() == DASH else Style.PLAIN) for figure in figures]
    if stuck:
        return [styled("gpu ", Style.DIM) + first, *rest, styled("✗ stuck low-power: unplug AC 60 s", Style.BAD)]
    throttle = styled("⚠ slowed: " + ", ".join(gpu.throttle), Style.WARN) if gpu.throttle else EMPTY
    return [styled("gpu ", Style.DIM) + first, *rest, throttle]


def _memory(memory: Memory | None) -> list[Line]:
    pressure = memory.pressure if memory else None
    style = Style.PLAIN
    if pressure is not None and pressure >= PRESSURE_LOOK:
        style = Style.BAD if pressure >= PRESSURE_ACT else Style.WARN
    used = memory.swap_used if memory else None
    return [_pair("pressure", percent(pressure, 1), style), _pair("swap", gib(used) if used else number(used))]


def gpu_line(view: View, width: int) -> Line:
    sample = view.sample
    gpu, memory = (sample.gpu, sample.memory) if sample else (None, None)
    stuck = view.sample is not None and view.sample.low_power
    line = _row(gpu, memory, width, stuck=stuck, more=_energy(view))
    return clip(dimmed(line) if view.sample_age_s is not None else line, width)


def _energy(view: View) -> list[Line]:
    """Return the energy per 1000 output tokens of the large engine, and what the box used since the daemon began."""
    sample = view.engine_sample(view.engine.profile) if view.engine else None
    counted, out = sample.gateway if sample else None, list[Line]()
    if counted is not None and counted.wh_per_1k is not None:
        out.append(styled(f"{counted.wh_per_1k:.2f}", Style.PLAIN) + styled(" Wh per 1k out", Style.DIM))
    energy = view.sample.energy if view.sample else None
    if energy is not None:
        used = f"{energy.busy_wh:.1f} Wh busy, {energy.idle_wh:.1f} idle"
        out.append(styled(used, Style.PLAIN) + styled(f" ({energy.sensor})", Style.DIM))
    return out


def _row(gpu: Gpu | None, memory: Memory | None, width: int, *, stuck: bool = False, more: Sequence[Line] = ()) -> Line:
    """Join the figures, leaving out what has no room as a whole."""
    line = styled(" ") + join(_gpu(gpu or NO_GPU, stuck), styled("  "))
    between = styled("     " if width >= ROOMY else "  ")
    for told in (*_memory(memory), *more):
        line = line + between + told if length(line + between + told) <= width else line
    return line


def gpu_lines(view: View, width: int) -> list[Line]:
    cells = min(max(map(length, (node_name(name, view) for name in (LOCAL, *view.nodes)))), width // 3)
    rows = [pad(node_name(LOCAL, view), cells) + gpu_line(view, width - cells - 1)]
    for name, state in sorted(view.nodes.items()):
        found = view.sample.nodes.get(name) if view.sample and not is_silent(state) else None
        gpu, memory = (found.gpu, found.memory) if found else (None, None)
        line = _row(gpu, memory, width - cells - 1)
        rows.append(pad(node_name(name, view), cells) + (line if view.node_age_s(name) is None else dimmed(line)))
    return [clip(styled(" ") + row, width) for row in rows]


class GpuRow(Panel):
    """Row of GPU and memory figures; with other nodes one row a box, or none where the memory panel has them."""

    def rows(self, view: View) -> int:
        if is_compact(self.app.size.height):
            return 0
        return 0 if view.nodes and self.app.size.height < SHORT_ROWS else 1 + len(view.nodes)

    def draw(self, view: View, width: int, height: int) -> list[Line]:
        return [] if not height else gpu_lines(view, width) if view.nodes else [gpu_line(view, width)]
