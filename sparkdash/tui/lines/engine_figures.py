"""Lines of an engine's live figures: label, figure, sparkline and remark.

Owns: the layout of these rows. Rule: figures keep their column whatever their size; stale ones are dimmed.

Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sparkdash.domain.engine import Engine
from sparkdash.domain.metric import EngineSample, Metric
from sparkdash.domain.profile import EngineKind
from sparkdash.domain.profile_figures import Figures
from sparkdash.tui.ink import EMPTY, Ink, Line, align_right, clip, dimmed, inked, join, length, pad
from sparkdash.tui.lines.spark import sparkline
from sparkdash.tui.mirror import View
from sparkdash.units import DASH, number, percent, tokens

LABEL, FIGURE, UNIT, REMARK = 9, 6, 6, 24
"""Widths of the columns in cells; the sparkline takes the rest."""
TEN, HUNDRED = 9.995, 99.95
"""Seconds from which one decimal fewer is shown."""
LEAST_WITH_REMARKS = 64
"""Width below which the remarks make room for the sparklines."""
DOTS = inked(" · ", Ink.DIM)
_MAY_BE_SILENT = frozenset({EngineKind.GENERIC, EngineKind.OPENAI})
"""Engines that may report no figures at all."""
_GATEWAY_COUNTS = inked("No figures of the server: medians are the gateway's own counts.", Ink.DIM)


class FigureRow(NamedTuple):
    """Row of one figure. `top` is the value that fills the sparkline; None: the highest one shown."""

    metric: Metric
    label: str
    figure: str
    unit: str
    remark: Line
    top: float | None


def figure_rows(view: View, engine: Engine, width: int, tall: int) -> list[Line]:
    """Format four figures with sparklines of `tall` rows, and the acceptance of drafts."""
    sample = view.engine_sample(engine.profile) or EngineSample(at=0.0)
    seen = (view.snapshot.figures.get(engine.profile) if view.snapshot else None) or Figures()
    remarks = width >= LEAST_WITH_REMARKS
    cells = max(width - LABEL - FIGURE - UNIT - 2 - (REMARK + 3 if remarks else 0), 0)
    lines: list[Line] = []
    for row in _figures(view, engine, sample, seen):
        values = view.history.last(engine.profile, row.metric, cells, view.now)
        lines += [*_drawn(row if remarks else row._replace(remark=EMPTY), values, tall), *([EMPTY] if tall > 1 else [])]
    counted = engine.kind in _MAY_BE_SILENT and view.engine_sample(engine.profile) is None
    lines.append(_GATEWAY_COUNTS if counted else _acceptance(view, engine, sample, width))
    if view.engine_age_s(engine.profile) is not None:
        lines = [dimmed(line) for line in lines]
    return [clip(line, width) for line in lines]


def figure_height(tall: int) -> int:
    """Return the number of lines that `figure_rows` gives."""
    return 4 * (tall + (tall > 1)) + 1


def _figures(view: View, engine: Engine, sample: EngineSample, seen: Figures) -> list[FigureRow]:
    return [
        FigureRow(
            Metric.DECODE, "decode", number(sample.get(Metric.DECODE), 1), "tok/s", _rates(view, engine, seen), None
        ),
        FigureRow(Metric.PREFILL, "prefill", number(sample.get(Metric.PREFILL)), "tok/s", _ttft(sample, seen), None),
        _share(Metric.PREFIX_HIT, "prefix", sample, _lifetime(sample)),
        _share(Metric.KV_USED, "kv", sample, _kv(sample)),
    ]


def _share(metric: Metric, label: str, sample: EngineSample, remark: Line) -> FigureRow:
    value = sample.get(metric)
    return FigureRow(metric, label, percent(value).removesuffix(" %"), "%", remark, 1.0)


def _drawn(row: FigureRow, values: Sequence[float | None], tall: int) -> list[Line]:
    top = row.top or max((value for value in values if value is not None), default=0.0)
    bars = sparkline(values, top, tall)
    unknown = row.figure == DASH
    head = pad(inked(row.label, Ink.DIM), LABEL) + align_right(
        inked(row.figure, Ink.DIM if unknown else Ink.STRONG), FIGURE
    )
    head += pad(inked(f" {row.unit}", Ink.DIM), UNIT) + inked("  ")
    blank = inked(" " * length(head))
    # the figure stands beside the sparkline's foot, where one row's height would put it
    lines = [blank + inked(bar, Ink.TRACE) for bar in bars[:-1]]
    return [*lines, head + inked(bars[-1], Ink.TRACE) + (inked("   ") + row.remark if row.remark else EMPTY)]


def _pair(name: str, value: str) -> Line:
    return inked(f"{name} ", Ink.DIM) + inked(value, Ink.DIM if value == DASH else Ink.PLAIN)


def _rates(view: View, engine: Engine, seen: Figures) -> Line:
    profile = view.snapshot.profile(engine.profile) if view.snapshot else None
    published = profile.published_decode_tok_s if profile else None
    told = _pair("pub", number(published, 1)) if published is not None else EMPTY
    return join([_pair("median", number(seen.decode_tok_s, 1)), told], DOTS)


def _ttft(sample: EngineSample, seen: Figures) -> Line:
    half = sample.get(Metric.TTFT_P50)
    half = seen.ttft_s if half is None else half
    late = sample.get(Metric.TTFT_P95)
    tail = _pair("p95", _seconds(late)) if late is not None else EMPTY
    return join([_pair("ttft", _seconds(half)), tail], DOTS)


def _seconds(value: float | None) -> str:
    """Format seconds in six cells at most: two long ones must fit the remark."""
    decimals = sum((value or 0.0) < limit for limit in (TEN, HUNDRED))
    return number(value, decimals, " s")


def _lifetime(sample: EngineSample) -> Line:
    return _pair("lifetime", percent(sample.get(Metric.PREFIX_HIT_LIFETIME)))


def _kv(sample: EngineSample) -> Line:
    used, capacity = sample.get(Metric.KV_USED), sample.get(Metric.KV_CAPACITY)
    if capacity is None:
        return EMPTY
    held = None if used is None else used * capacity
    return (
        inked(tokens(held), Ink.PLAIN)
        + inked(" of ", Ink.DIM)
        + inked(tokens(capacity), Ink.PLAIN)
        + inked(" tokens", Ink.DIM)
    )


def _acceptance(view: View, engine: Engine, sample: EngineSample, width: int) -> Line:
    profile = view.snapshot.profile(engine.profile) if view.snapshot else None
    method = profile.speculation if profile else None
    label = pad(inked("accept", Ink.DIM), LABEL)
    if method is None and sample.acceptance_at is None:
        return label + align_right(inked(DASH, Ink.DIM), FIGURE) + inked("        no speculation", Ink.DIM)
    rate = sample.get(Metric.ACCEPTANCE)
    figure = percent(rate).removesuffix(" %")
    head = (
        label
        + align_right(inked(figure, Ink.DIM if rate is None else Ink.STRONG), FIGURE)
        + pad(inked(" %", Ink.DIM), UNIT)
    )
    places = inked("by position ", Ink.DIM) + inked(_places(sample), Ink.PLAIN) if sample.acceptance_at else EMPTY
    mean = _pair("length", number(sample.get(Metric.ACCEPTANCE_LENGTH), 2))
    return clip(head + inked("  ") + join([places, mean, inked(method or "", Ink.DIM)], DOTS), width)


def _places(sample: EngineSample) -> str:
    return " ".join(f"{share:.2f}" for share in sample.acceptance_at or ())
