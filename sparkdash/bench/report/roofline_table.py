"""Table of measured decode rates against the memory's limit.

Owns: the ceiling of each cell. Must not know: how headers are read; the arithmetic is in engines/roofline.py.
Rule: there is no ceiling without the headers, the KV dtype that the engine resolved, and the bytes that drafting reads.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sparkdash.bench.judge.metrics import BenchMetric
from sparkdash.bench.report import cell_names
from sparkdash.bench.report.arm_tables import TableSource
from sparkdash.bench.report.blocks import Block, Grid, Heading, TableCell, TextBlock, Tone, format_percent, format_value
from sparkdash.bench.report.report import ArmReport
from sparkdash.bench.run import CellKey
from sparkdash.domain.base import Frozen
from sparkdash.domain.weights import WeightFacts
from sparkdash.engines.roofline import Roofline, decode_step, draft_bytes, kv_bits, parse_speculation, roofline


class CellCeiling(Frozen):
    """Measured rate of an arm in a cell, with its ceiling. Tokens per second."""

    arm: str
    key: CellKey
    measured: float
    line: Roofline


def cell_ceilings(source: TableSource, weights: Mapping[str, Mapping[str, WeightFacts]]) -> tuple[CellCeiling, ...]:
    """Return the ceiling of every measured single-request cell whose terms are all known."""
    lengths = {(one.arm, one.key): one.acceptance_length for one in source.report.speculation}
    found = []
    for arm in source.report.arms:
        facts = weights.get(arm.profile, {})
        for key in source.grid_keys:
            figure = source.figure(arm.name, key, BenchMetric.DECODE)
            line = _line(arm, facts, key, lengths.get((arm.name, key)))
            if figure and figure.median and line:
                found.append(CellCeiling(arm=arm.name, key=key, measured=figure.median, line=line))
    return tuple(found)


def ceiling_table(source: TableSource, found: tuple[CellCeiling, ...]) -> Iterator[Block]:
    """Build the table of shares of the ceiling. Figures above it are flagged."""
    if not found:
        return
    words = source.words
    yield Heading(2, "Against the memory's ceiling")
    said = "Ceiling: 273 GB/s x acceptance length / bytes read a step, by the checkpoint's own headers."
    yield TextBlock((said,), Tone.DIM)
    rows = tuple(_row(one, words) for one in found)
    yield Grid(head=("Arm", "Cell", "tok/s", "Ceiling", "Share", "GB a step"), rows=rows)


def _row(one: CellCeiling, words: dict[int, str]) -> tuple[TableCell, ...]:
    above = one.line.exceeded(one.measured)
    share = format_percent(one.line.share(one.measured)) + (" exceeds the roofline: unverified" if above else "")
    return (
        TableCell(one.arm),
        TableCell(cell_names.cell_name(one.key, words)),
        TableCell(format_value(one.measured)),
        TableCell(format_value(one.line.peak_tok_s)),
        TableCell(share, Tone.WORSE if above else Tone.PLAIN),
        TableCell(format_value(one.line.step.total / 1e9, 2)),
    )


def _line(arm: ArmReport, facts: Mapping[str, WeightFacts], key: CellKey, length: float | None) -> Roofline | None:
    told = arm.provenance
    bits = kv_bits(told.kv_dtype) if told else None
    target = facts.get("target")
    if told is None or bits is None or target is None:
        return None
    method, speculated = parse_speculation(told.speculation)
    drafted = draft_bytes(method, target, facts.get("drafter"))
    if drafted is None:
        return None
    middle = key.context + key.output // 2
    one = decode_step(target, context=middle, speculated=speculated or 0, key_bits=bits, draft_bytes=drafted)
    return roofline(one, acceptance_length=length if method else 1.0) if one else None
