"""Table of the KV cache by build: its tokens, and how many users of a 256K context it holds at once.

Users hold a whole context each and share no prefix.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterator

from sparkdash.bench.records import Provenance
from sparkdash.bench.report.arm_tables import TableSource
from sparkdash.bench.report.blocks import (
    DASH,
    Block,
    Footnotes,
    Grid,
    Heading,
    TableCell,
    TextBlock,
    Tone,
)

LONG = 262_144
"""Tokens of the published column: 256K."""
HOW = (
    "KV cache: tokens by the engine's own figure. Users: that figure over 262,144, whole contexts without a shared "
    "prefix. Computed, not measured."
)


def kv_table(source: TableSource) -> Iterator[Block]:
    """Table of the arms whose engine told the size of its cache; nothing without one."""
    known = [(arm.name, arm.provenance) for arm in source.report.arms if arm.provenance and arm.provenance.kv_tokens]
    if not known:
        return
    notes = Footnotes()
    rows = tuple((TableCell(name), *_cells(told, notes)) for name, told in known)
    yield Heading(2, "256K context")
    yield Grid(head=("Build", "KV cache", "256K concurrent users"), rows=rows, notes=tuple(notes.texts))
    yield TextBlock((HOW,), Tone.DIM)


def _cells(told: Provenance, notes: Footnotes) -> tuple[TableCell, TableCell]:
    tokens, limit = told.kv_tokens or 0, told.context_limit
    if limit is not None and limit < LONG:
        users = TableCell(DASH + notes.mark(f"the engine serves requests of up to {limit:,} tokens"), Tone.DIM)
    else:
        users = TableCell(str(tokens // LONG))
    return TableCell(f"{_tokens_text(tokens)} tokens"), users


def _tokens_text(tokens: int) -> str:
    """Format tokens in the published way: 355K, 1.4M."""
    if tokens >= 1_000_000:
        return f"{tokens / 1_000_000:.1f}M"
    return f"{tokens / 1000:.0f}K" if tokens >= 1000 else str(tokens)
