"""Charts of a report as plotly figures: plain data that plotly's script draws in the reader's browser.

Owns: what is drawn against what. Must not know: HTML, colours of the page (the page's script sets them by its theme).
Rule: an arm has one colour in all charts; only what may be claimed is coloured in the chart of differences.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparkdash.bench.judge.metrics import BenchMetric
from sparkdash.bench.judge.roofline import PEAK
from sparkdash.bench.judge.verdict import Conclusion
from sparkdash.bench.report import cell_names
from sparkdash.bench.report.arm_tables import TableSource
from sparkdash.bench.report.published_figures import RATES, matching_cell
from sparkdash.bench.report.roofline_table import CellCeiling
from sparkdash.bench.run import CellKey
from sparkdash.domain.published import Published

PALETTE = ("#4c8dff", "#f0883e", "#3fb27f", "#c678dd", "#d4a72c", "#e5534b", "#39c5cf", "#8b949e")
"""Colours of arms, distinguishable on dark and on light paper."""
BETTER, WORSE, NEITHER = "#3fb27f", "#e5534b", "#8b949e"
LEAST_POSITIONS = 4
"""Minimum places for bars: a single bar over the whole width looks like a surface."""
SEEN = 232e9
"""Measured bandwidth of a read-bound kernel on a GB10 in bytes/s: 231 to 234 GB/s (antirez/ds4, issue 773)."""
Trace = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Chart:
    """Figure with its title and a description of its data."""

    name: str
    title: str
    about: str
    data: list[Trace]
    layout: dict[str, Any]


def draw_charts(
    source: TableSource, published: Mapping[str, Sequence[Published]], roofs: tuple[CellCeiling, ...]
) -> tuple[Chart, ...]:
    """Draw the charts for which the run has data."""
    made = (
        _contexts(source, published),
        _differences(source),
        _acceptance(source),
        _ceilings(source, roofs),
        _beside(source, published),
    )
    return tuple(chart for chart in made if chart.data)


def _colour(source: TableSource, arm: str) -> str:
    order = [one.name for one in source.report.arms]
    return PALETTE[order.index(arm) % len(PALETTE)]


def _contexts(source: TableSource, published: Mapping[str, Sequence[Published]]) -> Chart:
    """Draw a panel per length: the arms' figures with bounds, and comparable published figures as hollow diamonds."""
    words = source.words
    layout: dict[str, Any] = {"grid": {"rows": 1, "columns": max(len(words), 1), "pattern": "independent"}}
    data: list[Trace] = []
    annotations = []
    for number, (output, word) in enumerate(words.items(), 1):
        axis = "" if number == 1 else str(number)
        keys = sorted((key for key in source.grid_keys if key.output == output), key=lambda key: key.context)
        layout[f"xaxis{axis}"] = {
            "title": {"text": "context, tokens"},
            "type": "category",
            "categoryarray": [
                cell_names.context_name(key.context) for key in keys
            ],  # else in the order in which figures come
        }
        layout[f"yaxis{axis}"] = (
            {"rangemode": "tozero", "matches": "y"}
            if axis
            else {"rangemode": "tozero", "title": {"text": source.metric.unit}}
        )
        annotations.append(
            {
                "text": word,
                "xref": f"x{axis} domain",
                "yref": f"y{axis} domain",
                "x": 0.5,
                "y": 1.08,
                "showarrow": False,
            }
        )
        for arm in source.report.arms:
            where = {"xaxis": f"x{axis}", "yaxis": f"y{axis}"}
            data += [{**trace, **where} for trace in _lines(source, arm.name, keys, first=number == 1)]
            data += [{**trace, **where} for trace in _hollow(source, arm.name, published.get(arm.profile, ()), keys)]
    layout["annotations"] = annotations
    return Chart("context", f"{source.metric.unit} against context", source.metric.definition, data, layout)


def _lines(source: TableSource, arm: str, keys: Sequence[CellKey], *, first: bool) -> Iterator[Trace]:
    known = [(key, figure) for key in keys if (figure := source.figure(arm, key)) and figure.median is not None]
    if not known:
        return
    above = [(one.high or one.median or 0) - (one.median or 0) for _, one in known]
    below = [(one.median or 0) - (one.low or one.median or 0) for _, one in known]
    yield {
        "type": "scatter",
        "mode": "lines+markers",
        "name": arm,
        "legendgroup": arm,
        "showlegend": first,
        "x": [cell_names.context_name(key.context) for key, _ in known],
        "y": [one.median for _, one in known],
        "error_y": {"type": "data", "symmetric": False, "array": above, "arrayminus": below, "thickness": 1},
        "line": {"color": _colour(source, arm)},
        "hovertemplate": f"{arm}<br>ctx=%{{x}}: %{{y:.1f}}<extra></extra>",
    }


def _hollow(source: TableSource, arm: str, published: Sequence[Published], keys: Sequence[CellKey]) -> Iterator[Trace]:
    name = next((name for metric, name in RATES if metric is source.metric), None)
    found = [
        (key, getattr(one, name), one.source)
        for one in published
        if name and (key := matching_cell(one, source)) in keys and key is not None and getattr(one, name)
    ]
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
            "marker": {"symbol": "diamond-open", "size": 9, "color": _colour(source, arm)},
            "hovertemplate": f"{arm}, published<br>ctx=%{{x}}: %{{y:.1f}}<br>%{{text}}<extra></extra>",
        }


def _differences(source: TableSource) -> Chart:
    """Draw each cell's change against the baseline with its interval."""
    words = source.words
    base = source.report.run.baseline
    data: list[Trace] = []
    for arm in source.report.arms:
        told = []
        for key in source.report.planned():
            figure = source.figure(arm.name, key)
            if arm.name != base and figure and figure.verdict.delta is not None:
                told.append((cell_names.cell_name(key, words), figure.verdict))
        if told:
            colours = [
                BETTER if one.claim is Conclusion.FASTER else WORSE if one.claim is Conclusion.SLOWER else NEITHER
                for _, one in told
            ]
            data.append(
                {
                    "type": "scatter",
                    "mode": "markers",
                    "name": arm.name,
                    "y": [f"{arm.name} · {cell}" for cell, _ in told],
                    "x": [100 * (one.delta or 0) for _, one in told],
                    "text": [one.text for _, one in told],
                    "marker": {"color": colours, "size": 8},
                    "error_x": {
                        "type": "data",
                        "symmetric": False,
                        "array": [
                            100 * ((one.high if one.high is not None else one.delta or 0) - (one.delta or 0))
                            for _, one in told
                        ],
                        "arrayminus": [
                            100 * ((one.delta or 0) - (one.low if one.low is not None else one.delta or 0))
                            for _, one in told
                        ],
                        "thickness": 1,
                        "color": NEITHER,
                    },
                    "hovertemplate": "%{y}<br>%{text}<extra></extra>",
                }
            )
    rows = sum(len(trace["y"]) for trace in data)
    layout = {
        "height": 120 + 22 * rows,
        "showlegend": False,
        "xaxis": {"title": {"text": f"change against {base}, %"}, "rangemode": "tozero", "zerolinewidth": 2},
        "yaxis": {"automargin": True, "autorange": "reversed"},
    }
    return Chart(
        "differences",
        f"Against {base}",
        "95 % intervals over engine launches; green and red only where a difference may be claimed.",
        data,
        layout,
    )


def _acceptance(source: TableSource) -> Chart:
    """Draw the share of accepted draft tokens by position, for each arm over all its cells."""
    data: list[Trace] = []
    most = 0
    for arm in source.report.arms:
        cells = [one.accepted_at for one in source.report.speculation if one.arm == arm.name and one.accepted_at]
        if cells:
            depth = min(map(len, cells))
            most = max(most, depth)
            shares = [sum(one[place] for one in cells) / len(cells) for place in range(depth)]
            data.append(
                {
                    "type": "bar",
                    "name": arm.name,
                    "x": [str(place + 1) for place in range(depth)],
                    "y": shares,
                    "marker": {"color": _colour(source, arm.name)},
                    "hovertemplate": f"{arm.name}<br>position %{{x}}: %{{y:.1%}}<extra></extra>",
                }
            )
    layout = {
        "barmode": "group",
        "bargap": 0.6,
        "showlegend": True,  # also of one arm alone: a bar must say whose it is
        "xaxis": {
            "title": {"text": "speculated position"},
            "type": "category",
            "range": [-0.5, max(most, LEAST_POSITIONS) - 0.5],
        },
        "yaxis": {"title": {"text": "accepted"}, "tickformat": ".0%", "range": [0, 1]},
    }
    return Chart(
        "acceptance",
        "Acceptance by position",
        "Draft tokens accepted at each position / verify steps, mean over the cells.",
        data,
        layout,
    )


def _ceilings(source: TableSource, roofs: tuple[CellCeiling, ...]) -> Chart:
    """Draw the share of the roofline, with a line at a perfect kernel's share."""
    data: list[Trace] = []
    words = source.words
    for arm in dict.fromkeys(one.arm for one in roofs):
        mine = [one for one in roofs if one.arm == arm]
        data.append(
            {
                "type": "bar",
                "name": arm,
                "x": [cell_names.cell_name(one.key, words) for one in mine],
                "y": [one.line.share(one.measured) for one in mine],
                "text": [f"{one.measured:.1f} of {one.line.peak_tok_s:.1f} tok/s" for one in mine],
                "textposition": "none",
                "marker": {"color": _colour(source, arm)},
                "hovertemplate": f"{arm}<br>%{{x}}: %{{text}}<extra></extra>",
            }
        )
    layout = {
        "barmode": "group",
        "xaxis": {"type": "category", "automargin": True},
        "yaxis": {"title": {"text": "of 273 GB/s"}, "tickformat": ".0%", "rangemode": "tozero"},
        "shapes": [
            {
                "type": "line",
                "xref": "paper",
                "x0": 0,
                "x1": 1,
                "y0": share,
                "y1": share,
                "line": {"dash": dash, "width": 1, "color": NEITHER},
            }
            for share, dash in ((1.0, "solid"), (SEEN / PEAK, "dot"))
        ],
    }
    about = "Measured decode / what the memory allows; dotted: 232 GB/s, the most that a kernel was seen to reach. Above 100 % a figure cannot be right."
    return Chart("roofline", "Share of the roofline", about, data, layout)


def _beside(source: TableSource, published: Mapping[str, Sequence[Published]]) -> Chart:
    """Draw own figures beside published ones."""
    words = source.words
    pairs: list[tuple[str, float, float]] = []
    for arm in source.report.arms:
        for one in published.get(arm.profile, ()):
            key = matching_cell(one, source)
            for metric, name in RATES:
                theirs = getattr(one, name)
                ours = source.figure(arm.name, key, metric) if key else None
                if key and theirs is not None and metric is not BenchMetric.PREFILL and ours and ours.median:
                    pairs.append(
                        (f"{arm.name} · {cell_names.cell_name(key, words)} · {metric.value}", theirs, ours.median)
                    )
    labels = [label for label, _, _ in pairs]
    data: list[Trace] = [
        {"type": "bar", "orientation": "h", "name": name, "y": labels, "x": rates, "marker": {"color": colour}}
        for name, colour, rates in (
            ("published", NEITHER, [theirs for _, theirs, _ in pairs]),
            ("here", PALETTE[0], [ours for _, _, ours in pairs]),
        )
    ]
    layout = {
        "barmode": "group",
        "height": 140 + 34 * len(pairs),
        "xaxis": {"title": {"text": "tok/s"}, "rangemode": "tozero"},
        "yaxis": {"automargin": True, "autorange": "reversed"},
    }
    about = "Other boxes, prompts and harnesses: a difference here is no verdict."
    return Chart("published", "Beside the published figures", about, data if pairs else [], layout)
