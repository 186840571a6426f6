"""Charts of a report: which figures each shows, as shapes that the page draws.

Owns: which figures each chart shows. Must not know: HTML, pixels (formats/svg.py).
Rule: an arm has one colour in all charts. In the chart of differences only claimed ones are coloured.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sparkdash.bench.judge.metrics import BenchMetric
from sparkdash.bench.judge.verdict import Conclusion, Verdict
from sparkdash.bench.report import cell_names
from sparkdash.bench.report.arm_tables import TableSource
from sparkdash.bench.report.chart import (
    BETTER,
    NEITHER,
    PALETTE,
    WORSE,
    BarPanel,
    Chart,
    IntervalPanel,
    IntervalRow,
    PlotBar,
    PlotPoint,
    arm_colour,
)
from sparkdash.bench.report.context_chart import context_chart
from sparkdash.bench.report.published.published_figures import RATES, matching_cell
from sparkdash.bench.report.roofline_table import CellCeiling
from sparkdash.domain.profile import Published
from sparkdash.engines.roofline import PEAK

COLOURS = {Conclusion.FASTER: BETTER, Conclusion.SLOWER: WORSE}
"""Colours of claims; other points have NEITHER."""
SEEN = 232e9
"""Measured bandwidth of a read-bound kernel on a GB10 in bytes/s: 231 to 234 GB/s (antirez/ds4, issue 773)."""


def draw_charts(
    source: TableSource, published: Mapping[str, Sequence[Published]], roofs: tuple[CellCeiling, ...]
) -> tuple[Chart, ...]:
    """Draw the charts for which the run has data."""
    made = (
        context_chart(source, published),
        _differences(source),
        _acceptance(source),
        _ceilings(source, roofs),
        _beside(source, published),
    )
    return tuple(chart for chart in made if chart.panels)


def _differences(source: TableSource) -> Chart:
    """Draw each cell's change against the baseline with its interval, in a panel per arm."""
    base = source.report.run.baseline
    panels = (
        IntervalPanel(arm.name, _judged_cells(source, arm.name)) for arm in source.report.arms if arm.name != base
    )
    return Chart(
        "differences",
        f"Against {base}",
        "95 % intervals over engine launches; green and red only where a difference may be claimed.",
        "%",
        tuple(panel for panel in panels if panel.rows),
    )


def _judged_cells(source: TableSource, arm: str) -> tuple[IntervalRow, ...]:
    """Return the cells in which the arm's change is known."""
    found = []
    for key in source.report.planned():
        figure = source.figure(arm, key)
        if figure is not None and figure.verdict.delta is not None:
            verdict = figure.verdict
            colour = COLOURS.get(verdict.claim, NEITHER)
            found.append(IntervalRow(cell_names.short_cell_name(key, source.words), colour, _change(verdict)))
    return tuple(found)


def _change(verdict: Verdict) -> PlotPoint:
    """Return the change with its bounds, in per cent."""
    delta = verdict.delta or 0.0
    low = delta if verdict.low is None else verdict.low
    high = delta if verdict.high is None else verdict.high
    return PlotPoint(100 * delta, 100 * low, 100 * high, verdict.text)


def _acceptance(source: TableSource) -> Chart:
    """Draw the share of accepted draft tokens by position, for each arm over all its cells."""
    groups: dict[str, list[PlotBar]] = {}
    for arm in source.report.arms:
        cells = [one.accepted_at for one in source.report.speculation if one.arm == arm.name and one.accepted_at]
        for place in range(min(map(len, cells), default=0)):
            share = 100 * sum(one[place] for one in cells) / len(cells)
            bar = PlotBar(arm.name, arm_colour(source, arm.name), share, f"{share:.0f} %")
            groups.setdefault(f"position {place + 1}", []).append(bar)
    panel = BarPanel("", tuple((name, tuple(bars)) for name, bars in groups.items()), most=100.0)
    about = "Draft tokens accepted at each position / verify steps, mean over the cells."
    return _bar_chart("acceptance", "Acceptance by position", about, panel)


def _bar_chart(name: str, title: str, about: str, panel: BarPanel, unit: str = "%") -> Chart:
    legend = {bar.name: bar.colour for _, bars in panel.groups for bar in bars}
    return Chart(name, title, about, unit, (panel,) if panel.groups else (), tuple(legend.items()))


def _ceilings(source: TableSource, roofs: tuple[CellCeiling, ...]) -> Chart:
    """Draw the share of the roofline, with a line at a perfect kernel's share."""
    groups: dict[str, list[PlotBar]] = {}
    for one in roofs:
        share = 100 * one.line.share(one.measured)
        text = f"{share:.0f} %: {one.measured:.1f} of {one.line.peak_tok_s:.1f} tok/s"
        bar = PlotBar(one.arm, arm_colour(source, one.arm), share, text)
        groups.setdefault(cell_names.short_cell_name(one.key, source.words), []).append(bar)
    marks = ((100.0, False), (100 * SEEN / PEAK, True))
    panel = BarPanel("", tuple((name, tuple(bars)) for name, bars in groups.items()), most=100.0, marks=marks)
    about = (
        "Measured decode / what 273 GB/s allow; dashed: 232 GB/s, the most that a kernel was seen to reach. "
        "Above 100 % a figure cannot be right."
    )
    return _bar_chart("roofline", "Share of the roofline", about, panel)


def _beside(source: TableSource, published: Mapping[str, Sequence[Published]]) -> Chart:
    """Draw own figures beside published ones."""
    groups = tuple(
        (
            label,
            (PlotBar("published", NEITHER, theirs, f"{theirs:.1f}"), PlotBar("here", PALETTE[0], ours, f"{ours:.1f}")),
        )
        for arm in source.report.arms
        for one in published.get(arm.profile, ())
        for label, theirs, ours in _published_pairs(source, arm.name, one)
    )
    about = "Other boxes, prompts and harnesses: a difference here is no verdict."
    return _bar_chart("published", "Beside the published figures", about, BarPanel("", groups), "tok/s")


def _published_pairs(source: TableSource, arm: str, one: Published) -> Iterator[tuple[str, float, float]]:
    """Yield (label, published rate, own rate) for each rate that both have."""
    key = matching_cell(one, source)
    if key is None:
        return
    for metric, name in RATES:
        theirs = getattr(one, name)
        ours = source.figure(arm, key, metric)
        if theirs is not None and metric is not BenchMetric.PREFILL and ours and ours.median:
            yield f"{arm} · {cell_names.short_cell_name(key, source.words)} · {metric.value}", theirs, ours.median
