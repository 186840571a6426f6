"""Published figures beside a run's own. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from sparkdash.bench.judge.metrics import BenchMetric
from sparkdash.bench.report import blocks
from sparkdash.bench.report.arm_tables import TableSource
from sparkdash.bench.report.blocks import (
    Block,
    Grid,
    Heading,
    TableCell,
    TextBlock,
    Tone,
    format_change,
    format_value,
)
from sparkdash.bench.run import CellKey
from sparkdash.domain.profile import Published

_CONTEXT = re.compile(r"ctx (\d+)(K?), (short|medium|long)")
_CROWD = re.compile(r"(\d+) at once, (\d+) tokens each")
_PREFILL = re.compile(r"pp(\d+)(K?), tg(\d+)")

RATES = (
    (BenchMetric.E2E, "e2e_tok_s"),
    (BenchMetric.DECODE, "decode_tok_s"),
    (BenchMetric.PREFILL, "prefill_tok_s"),
    (BenchMetric.AGGREGATE, "aggregate_tok_s"),
)


def matching_cell(one: Published, source: TableSource) -> CellKey | None:
    """Return the cell nearest to a published workload; None without a match."""
    keys: Sequence[CellKey] = source.report.planned()
    if found := _CONTEXT.fullmatch(one.workload):
        keys = source.grid_keys
        words = {word: tokens for tokens, word in source.words.items()}
        wanted = (_tokens(found[1], found[2]), words.get(found[3]), 1)
    elif found := _CROWD.fullmatch(one.workload):
        return next((key for key in keys if (key.output, key.concurrency) == (int(found[2]), int(found[1]))), None)
    elif found := _PREFILL.match(one.workload):
        wanted = (_tokens(found[1], found[2]), int(found[3]), 1)
    else:
        return None
    return next((key for key in keys if (key.context, key.output, key.concurrency) == wanted and not key.warm), None)


def published_tables(source: TableSource, published: Mapping[str, Sequence[Published]]) -> Iterator[Block]:
    """Build a table for each arm with comparable published figures."""
    words = source.words
    tables: list[Block] = []
    for arm in source.report.arms:
        rows = tuple(_rows(source, arm.name, published.get(arm.profile, ()), words))
        if rows:
            tables += [
                Heading(3, arm.name),
                Grid(head=("Cell", "Figure", "Published", "Here", "Difference", "Source"), rows=rows),
            ]
    if tables:
        yield Heading(2, "Beside the published figures")
        yield TextBlock(("Other boxes, prompts and harnesses: a difference here is no verdict.",), Tone.DIM)
        yield from tables


def _rows(
    source: TableSource, arm: str, published: Sequence[Published], words: dict[int, str]
) -> Iterator[tuple[TableCell, ...]]:
    for one in published:
        key = matching_cell(one, source)
        for metric, name in RATES:
            theirs: float | None = getattr(one, name)
            if key is None or theirs is None:
                continue
            ours = source.figure(arm, key, metric)
            here = ours.median if ours else None
            gap = format_change(here / theirs - 1) if here else ""
            said = (
                blocks.cell_name(key, words),
                metric.value,
                format_value(theirs),
                format_value(here),
                gap,
                one.source,
            )
            yield tuple(TableCell(text) for text in said)


def _tokens(count: str, kilo: str) -> int:
    return int(count) * (1024 if kilo else 1)
