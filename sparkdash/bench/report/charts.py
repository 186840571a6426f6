"""Charts of a report as plotly figures: plain data that plotly's script draws in the reader's browser.

Owns: which figures each chart shows. Must not know: HTML, the page's colours (the page's script sets them by its
theme).
Rule: an arm has one colour in all charts. In the chart of differences only claimed ones are coloured.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sparkdash.bench.judge.metrics import BenchMetric
from sparkdash.bench.judge.roofline import PEAK
from sparkdash.bench.judge.verdict import Conclusion, Verdict
from sparkdash.bench.report import cell_names
from sparkdash.bench.report.arm_tables import TableSource
from sparkdash.bench.report.chart import BETTER, NEITHER, PALETTE, WORSE, Chart, Trace, arm_colour, error_bars
from sparkdash.bench.report.context_chart import context_chart
from sparkdash.bench.report.published_figures import RATES, matching_cell
from sparkdash.bench.report.roofline_table import CellCeiling
from sparkdash.domain.published import Published

LEAST_POSITIONS = 4
"""Minimum places for bars: a single bar over the whole width looks like a surface."""
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
    return tuple(chart for chart in made if chart.data)


def _differences(source: TableSource) -> Chart:
    """Draw each cell's change against the baseline with its interval."""
    base = source.report.run.baseline
    traces = (_difference_trace(source, arm.name) for arm in source.report.arms if arm.name != base)
    data = [trace for trace in traces if trace is not None]
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


def _difference_trace(source: TableSource, arm: str) -> Trace | None:
    told = _judged_cells(source, arm)
    if not told:
        return None
    bounds = [_verdict_bounds(verdict) for _, verdict in told]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": arm,
        "y": [f"{arm} · {cell}" for cell, _ in told],
        "x": [100 * (one.delta or 0) for _, one in told],
        "text": [one.text for _, one in told],
        "marker": {"color": [COLOURS.get(one.claim, NEITHER) for _, one in told], "size": 8},
        "error_x": {**error_bars(bounds), "color": NEITHER},
        "hovertemplate": "%{y}<br>%{text}<extra></extra>",
    }


def _judged_cells(source: TableSource, arm: str) -> list[tuple[str, Verdict]]:
    """Name and verdict of each cell in which the arm's change is known."""
    figures = ((key, source.figure(arm, key)) for key in source.report.planned())
    return [
        (cell_names.cell_name(key, source.words), figure.verdict)
        for key, figure in figures
        if figure and figure.verdict.delta is not None
    ]


def _verdict_bounds(verdict: Verdict) -> tuple[float, float]:
    """Return the distances of the lower and the upper bound from the change, in per cent."""
    delta = verdict.delta or 0
    low = delta if verdict.low is None else verdict.low
    high = delta if verdict.high is None else verdict.high
    return 100 * (delta - low), 100 * (high - delta)


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
                    "marker": {"color": arm_colour(source, arm.name)},
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
                "marker": {"color": arm_colour(source, arm)},
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
    about = (
        "Measured decode / what the memory allows; dotted: 232 GB/s, the most that a kernel was seen to reach. "
        "Above 100 % a figure cannot be right."
    )
    return Chart("roofline", "Share of the roofline", about, data, layout)


def _beside(source: TableSource, published: Mapping[str, Sequence[Published]]) -> Chart:
    """Draw own figures beside published ones."""
    pairs = [
        pair
        for arm in source.report.arms
        for one in published.get(arm.profile, ())
        for pair in _published_pairs(source, arm.name, one)
    ]
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


def _published_pairs(source: TableSource, arm: str, one: Published) -> Iterator[tuple[str, float, float]]:
    """Yield (label, published rate, own rate) for each rate that both have."""
    key = matching_cell(one, source)
    if key is None:
        return
    for metric, name in RATES:
        theirs = getattr(one, name)
        ours = source.figure(arm, key, metric)
        if theirs is not None and metric is not BenchMetric.PREFILL and ours and ours.median:
            yield f"{arm} · {cell_names.cell_name(key, source.words)} · {metric.value}", theirs, ours.median
