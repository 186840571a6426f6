"""Chart of rates against context, with a panel per output length.

Owns: its panels and lines. Must not know: HTML.
Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sparkdash.bench.report import cell_names
from sparkdash.bench.report.arm_tables import TableSource
from sparkdash.bench.report.blocks import decimals
from sparkdash.bench.report.chart import Chart, LinePanel, PlotLine, PlotPoint, arm_colour
from sparkdash.bench.report.published.published_figures import RATES, matching_cell
from sparkdash.bench.run import CellKey
from sparkdash.domain.profile import Published


def context_chart(source: TableSource, published: Mapping[str, Sequence[Published]]) -> Chart:
    """Draw a panel per length: the arms' figures with bounds, and comparable published figures as hollow marks."""
    panels = tuple(
        panel for output, word in source.words.items() if (panel := _panel(source, published, output, word)).lines
    )
    lines = [line for panel in panels for line in panel.lines]
    legend = {line.name: line.colour for line in lines if not line.hollow}
    hollow = "; hollow marks were published" if any(line.hollow for line in lines) else ""
    return Chart(
        "context",
        f"{source.metric.unit} against context",
        source.metric.definition + hollow,
        source.metric.unit,
        panels,
        tuple(legend.items()),
    )


def _panel(source: TableSource, published: Mapping[str, Sequence[Published]], output: int, word: str) -> LinePanel:
    keys = sorted((key for key in source.grid_keys if key.output == output), key=lambda key: key.context)
    lines = []
    for arm in source.report.arms:
        colour = arm_colour(source, arm.name)
        lines.append(PlotLine(arm.name, colour, _points(source, arm.name, keys)))
        others = _published_points(source, published.get(arm.profile, ()), keys)
        lines.append(PlotLine(f"{arm.name}, published", colour, others, hollow=True))
    categories = tuple(cell_names.context_name(key.context) for key in keys)
    return LinePanel(word, categories, tuple(line for line in lines if line.points))


def _points(source: TableSource, arm: str, keys: Sequence[CellKey]) -> dict[str, PlotPoint]:
    found = {}
    for key in keys:
        figure = source.figure(arm, key)
        if figure is not None and (middle := figure.median) is not None:
            place = cell_names.context_name(key.context)
            about = f"{arm}, ctx={place}: {middle:.{decimals(source.metric)}f} {source.metric.unit}"
            found[place] = PlotPoint(middle, figure.low or middle, figure.high or middle, about)
    return found


def _published_points(
    source: TableSource, published: Sequence[Published], keys: Sequence[CellKey]
) -> dict[str, PlotPoint]:
    """Return the published figures that belong to these cells, by context."""
    name = next((name for metric, name in RATES if metric is source.metric), None)
    found = {}
    for one in published if name is not None else ():
        key, rate = matching_cell(one, source), getattr(one, name or "")
        if rate and key is not None and key in keys:
            about = f"published: {rate:.1f} {source.metric.unit} ({one.source})"
            found[cell_names.context_name(key.context)] = PlotPoint(rate, rate, rate, about)
    return found
