"""Report of one build in the published layout of a lab: date, configuration, batches, prefix cache, start.

Owns: the order and words of these parts. Must not know: how they are measured, Markdown.
Pure.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from sparkdash.bench.report import arm_tables
from sparkdash.bench.report.arm_tables import TableSource
from sparkdash.bench.report.blocks import DASH, Block, Heading, TextBlock
from sparkdash.bench.run import Kind
from sparkdash.units import duration


def batch_reports(source: TableSource) -> Iterator[Block]:
    """Part of each arm: batches with their aggregate, the delta hit rate of the prefix cache, the start."""
    for arm in source.report.arms:
        told = arm.provenance
        yield Heading(2, arm.name)
        yield TextBlock(
            (f"Date: {source.report.run.created_at:%Y-%m-%d}", f"Config: {_flags(told.argv if told else ())}")
        )
        yield from arm_tables.batch_table(source, arm.name)
        if source.report.planned(Kind.PREFIX):
            yield from arm_tables.prefix_cache_line(source, arm.name)
        start = DASH if told is None or told.startup_s is None else f"about {duration(told.startup_s)}"
        yield TextBlock((f"Startup to first inference: {start}.",))


def _flags(argv: Sequence[str]) -> str:
    """Return the flags of a start command, each with its value: `--tensor-parallel-size=2, --quantization=fp8`."""
    found: list[str] = []
    for word in argv:
        if word.startswith("--"):
            found.append(word)
        elif found and "=" not in found[-1]:
            found[-1] += f"={shlex.quote(word)}"
    return ", ".join(found) or DASH
