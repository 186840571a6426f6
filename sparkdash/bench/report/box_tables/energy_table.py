"""Table of energy per 1,000 output tokens, with power, clock and temperature beside it.

Owns: its columns and words. Must not know: how energy is computed.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterator

from sparkdash.bench.judge.energy import DEFINITION, CellEnergy, EnergyChange
from sparkdash.bench.report import cell_names
from sparkdash.bench.report.arm_tables import TableSource
from sparkdash.bench.report.blocks import DASH, Block, Grid, Heading, TableCell, TextBlock, Tone, format_change

HEAD = ("Cell", "Wh per 1k tokens", "Change", "W", "Lowest MHz", "Highest °C")
NO_CLAIM = (
    "No difference is claimed here. Each interval is of one cell alone: of twenty cells of equal arms, "
    "one excludes zero by chance."
)


def energy_table(source: TableSource) -> Iterator[Block]:
    """Table of every cell whose power was read; nothing without one."""
    found = source.report.energies
    if not found:
        return
    sensors = ", ".join(sorted({one.sensor for one in found}))
    yield Heading(2, "Energy")
    yield TextBlock((f"Wh per 1,000 output tokens: {DEFINITION}. Sensor: {sensors}.",), Tone.DIM)
    for arm in dict.fromkeys(one.arm for one in found):
        yield Heading(3, arm)
        yield Grid(head=HEAD, rows=tuple(_row(source, one) for one in found if one.arm == arm), right=True)
    if any(one.change is not None for one in found):
        yield TextBlock((NO_CLAIM,), Tone.DIM)


def _row(source: TableSource, one: CellEnergy) -> tuple[TableCell, ...]:
    bounds = f" [{one.low:.3g}, {one.high:.3g}]" if one.n > 1 else ""
    texts = (
        cell_names.cell_name(one.key, source.words),
        f"{one.wh:.3g}{bounds}",
        "baseline" if one.arm == source.report.run.baseline else _change_text(one.change),
        f"{one.power_w:.1f}",
        DASH if one.clock_mhz is None else f"{one.clock_mhz:.0f}",
        DASH if one.temperature_c is None else f"{one.temperature_c:.0f}",
    )
    return tuple(TableCell(text) for text in texts)


def _change_text(change: EnergyChange | None) -> str:
    """Format a change with its interval; in brackets without one."""
    if change is None:
        return DASH
    if change.low is None or change.high is None:
        return f"({format_change(change.delta)})"
    return f"{format_change(change.delta)} [{100 * change.low:.1f}, {100 * change.high:.1f}]"
