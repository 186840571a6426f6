"""Chart of rates against context, with a panel per output length.

Owns: its traces and axes. Must not know: HTML.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sparkdash.bench.judge.judgement import ArmFigure
from sparkdash.bench.report import cell_names
from sparkdash.bench.report.arm_tables import TableSource
from sparkdash.bench.report.chart import Chart, Trace, arm_colour, error_bars
from sparkdash.bench.report.published_figures import RATES, matching_cell
from sparkdash.bench.run import CellKey
from sparkdash.domain.published import Published


def context_chart(source: TableSource, published: Mapping[str, Sequence[Published]]) -> Chart:
    """Draw a panel per length: the arms' figures with bounds, and comparable published figures as hollow diamonds."""
    layout: dict[str, Any] = {"grid": {"rows": 1, "columns": max(len(source.words), 1), "pattern": "independent"}}
    data: list[Trace] = []
    annotations = []
    for number, (output, word) in enumerate(source.words.items(), 1):
        axis = "" if number == 1 else str(number)
        keys = sorted((key for key in source.grid_keys if key.output == output), key=lambda key: key.context)
        layout[f"xaxis{axis}"] = _x_axis(keys)
        layout[f"yaxis{axis}"] = _y_axis(source, axis)
        annotations.append(_panel_title(axis, word))
        where = {"xaxis": f"x{axis}", "yaxis": f"y{axis}"}
        for arm in source.report.arms:
            data += [{**trace, **where} for trace in _lines(source, arm.name, keys, first=number == 1)]
            data += [{**trace, **where} for trace in _hollow(source, arm.name, published.get(arm.profile, ()), keys)]
    layout["annotations"] = annotations
    return Chart("context", f"{source.metric.unit} against context", source.metric.definition, data, layout)


def _x_axis(keys: Sequence[CellKey]) -> dict[str, Any]:
    # plotly otherwise orders categories as figures come
    categories = [cell_names.context_name(key.context) for key in keys]
    return {"title": {"text": "context, tokens"}, "type": "category", "categoryarray": categories}


def _y_axis(source: TableSource, axis: str) -> dict[str, Any]:
    if axis:
        return {"rangemode": "tozero", "matches": "y"}
    return {"rangemode": "tozero", "title": {"text": source.metric.unit}}


def _panel_title(axis: str, word: str) -> dict[str, Any]:
    return {
        "text": word,
        "xref": f"x{axis} domain",
        "yref": f"y{axis} domain",
        "x": 0.5,
        "y": 1.08,
        "showarrow": False,
    }


def _lines(source: TableSource, arm: str, keys: Sequence[CellKey], *, first: bool) -> Iterator[Trace]:
    known = [(key, figure) for key in keys if (figure := source.figure(arm, key)) and figure.median is not None]
    if not known:
        return
    bounds = [_bounds(figure) for _, figure in known]
    yield {
        "type": "scatter",
        "mode": "lines+markers",
        "name": arm,
        "legendgroup": arm,
        "showlegend": first,
        "x": [cell_names.context_name(key.context) for key, _ in known],
        "y": [one.median for _, one in known],
        "error_y": error_bars(bounds),
        "line": {"color": arm_colour(source, arm)},
        "hovertemplate": f"{arm}<br>ctx=%{{x}}: %{{y:.1f}}<extra></extra>",
    }


def _published_points(
    source: TableSource, published: Sequence[Published], keys: Sequence[CellKey]
) -> list[tuple[CellKey, float, str]]:
    """Cell, rate and source of each published figure that belongs to one of these cells."""
    name = next((name for metric, name in RATES if metric is source.metric), None)
    if name is None:
        return []
    matched = ((matching_cell(one, source), getattr(one, name), one.source) for one in published)
    return [(key, rate, said) for key, rate, said in matched if rate and key is not None and key in keys]


def _bounds(figure: ArmFigure) -> tuple[float, float]:
    """Return the distances of the lower and the upper bound from the median."""
    middle = figure.median or 0
    return middle - (figure.low or middle), (figure.high or middle) - middle


def _hollow(source: TableSource, arm: str, published: Sequence[Published], keys: Sequence[CellKey]) -> Iterator[Trace]:
    found = _published_points(source, published, keys)
    if found:
        yield {
            "type": "scatter",
            "mode": "markers",
            "name": f"{arm}, published",
            "legendgroup": f"{arm} published",
            "showlegend": keys[0].output == min(key.output for key in source.grid_keys),
            "x": [cell_names.context_name(key.context) for key, _, _ in found],
            "y": [rate for _, rate, _ in found],
            "text": [said for _, _, said in found],
            "marker": {"symbol": "diamond-open", "size": 9, "color": arm_colour(source, arm)},
            "hovertemplate": f"{arm}, published<br>ctx=%{{x}}: %{{y:.1f}}<br>%{{text}}<extra></extra>",
        }
