"""Table of recipes with their headline, in the layout of the published collection: prefill, and paired decode.

Owns: the published columns and the words of a headline. Must not know: how anything is judged, Markdown.
Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from sparkdash.bench.judge.metrics import BenchMetric
from sparkdash.bench.report import cell_names
from sparkdash.bench.report.arm_tables import TableSource
from sparkdash.bench.report.blocks import DASH, Block, Grid, Heading, TableCell
from sparkdash.bench.report.formats.quantization_label import quantization_label
from sparkdash.bench.report.published.paired_table import paired_headline
from sparkdash.bench.report.report import ArmReport
from sparkdash.bench.run import CellKey
from sparkdash.domain.weights import WeightFacts

HEAD = ("Recipe", "Model", "Quant", "Spec method", "Headline (tok/s)", "Status")
LEAST_PROMPT = 1024
"""Prompts below this say little of prefill."""
Weights = Mapping[str, Mapping[str, WeightFacts]]
Headline = Callable[[TableSource, str], str | None]
"""(source, arm) -> the words of its headline; None: not measured."""


def prefill_recipes(source: TableSource, weights: Weights) -> Iterator[Block]:
    """Table of the arms with their prefill rates: `3030.63 pp tok/s at pp2048/tg32/c1, n=30`."""
    yield from _recipes(source, weights, "Prefill", _prefill_headline)


def paired_recipes(source: TableSource, weights: Weights) -> Iterator[Block]:
    """Table of the arms with their paired decode rates."""
    yield from _recipes(source, weights, "Paired runs", _paired_headline)


def _recipes(source: TableSource, weights: Weights, title: str, headline: Headline) -> Iterator[Block]:
    yield Heading(2, title)
    rows = tuple(_row(source, arm, weights, headline(source, arm.name)) for arm in source.report.arms)
    yield Grid(head=HEAD, rows=rows)


def _row(source: TableSource, arm: ArmReport, weights: Weights, headline: str | None) -> tuple[TableCell, ...]:
    told = arm.provenance
    model = told.model if told else None
    label = quantization_label(weights.get(arm.profile, {}).get("target"), told.argv if told else (), model)
    texts = (
        arm.name,
        model or DASH,
        label or DASH,
        DASH if told is None else told.speculation or "none (AR)",
        headline or "TBD",
        _status(source, arm),
    )
    return tuple(map(TableCell, texts))


def _status(source: TableSource, arm: ArmReport) -> str:
    if arm.impossible:
        return f"cannot run: {arm.impossible}"
    if missing := next((one for one in source.report.filling if one.arm == arm.name), None):
        return f"measuring, {missing.of - missing.cells} of {missing.of} cells"
    return "simulated" if source.report.simulated else "measured"


def _prefill_headline(source: TableSource, arm: str) -> str | None:
    keys = [one for one in source.report.planned() if one.context >= LEAST_PROMPT and one.concurrency == 1]
    told = [text for key in keys if not key.warm and (text := _prefill_text(source, arm, key)) is not None]
    return "; ".join(told) or None


def _prefill_text(source: TableSource, arm: str, key: CellKey) -> str | None:
    figure = source.figure(arm, key, BenchMetric.PREFILL)
    if figure is None or figure.median is None:
        return None
    return f"{figure.median:.2f} pp tok/s at pp{key.context}/tg{key.output}/c{key.concurrency}, n={figure.n}"


def _paired_headline(source: TableSource, arm: str) -> str | None:
    cells = [one for one in source.report.pairs if one.arm == arm and one.metric is BenchMetric.DECODE]
    return paired_headline(cells) or _baseline_headline(source, arm)


def _baseline_headline(source: TableSource, arm: str) -> str | None:
    """Return the baseline's own rates, by context."""
    found = ((key, source.figure(arm, key, BenchMetric.DECODE)) for key in source.grid_keys)
    known = [(key, one) for key, one in found if one is not None and one.median is not None]
    rates = [f"{one.median:.2f} @{cell_names.context_name(key.context)}" for key, one in known]
    return f"{rates[0].replace(' @', ' TG tok/s @')}{''.join(f', {rate}' for rate in rates[1:])}" if rates else None
