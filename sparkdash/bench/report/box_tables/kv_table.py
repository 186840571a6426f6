"""Table of the KV cache by build: its tokens, and how many users of a 256K context it holds at once.

Owns: the published table's rows and columns. Must not know: where the engine's figure comes from, how users join.
Rule: the computed number and the one by admission stand side by side, never one in the place of the other. Users hold
a whole context each and share no prefix.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sparkdash.bench.judge.users import ArmUsers, concurrent_users
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
    format_percent,
)

LONG = 262_144
"""Tokens of the published column: 256K."""
HOW = (
    "KV cache: tokens by the engine's own figure. Users: that figure over 262,144, whole contexts without a shared "
    "prefix. Computed, not measured by admission."
)
ADMITTED = (
    "By admission: users who joined one by one and whose answers all ran at once, before the engine queued or "
    "preempted the next, by its own figures."
)
STOPS = {
    "queued": "the engine queued the next",
    "preempted": "the engine preempted for the next",
    "most": "no more were tried",
}


def kv_table(source: TableSource) -> Iterator[Block]:
    """Table of the arms whose engine told the size of its cache; nothing without one."""
    users = source.report.users
    joined = {one.arm for one in users}
    known = [(arm.name, arm.provenance or Provenance()) for arm in source.report.arms]
    known = [(name, told) for name, told in known if told.kv_tokens or name in joined]
    if not known:
        return
    notes = Footnotes()
    head = ("Build", "KV cache", "256K concurrent users") + ("By admission",) * bool(users)
    rows = tuple(
        (TableCell(name), *_cells(told, notes), *((_admitted(users, name, notes),) * bool(users)))
        for name, told in known
    )
    yield Heading(2, "256K context")
    yield Grid(head=head, rows=rows, notes=tuple(notes.texts))
    yield TextBlock((HOW, *((ADMITTED,) * bool(users))), Tone.DIM)


def _admitted(users: Sequence[ArmUsers], arm: str, notes: Footnotes) -> TableCell:
    """Return the number of users by admission, with what stopped it and the number that the cache should hold."""
    found = next((one for one in users if one.arm == arm), None)
    if found is None:
        return TableCell("")
    last = found.ramps[-1]
    used = "" if last.kv_used is None else f" at {format_percent(last.kv_used)} of the cache"
    said = [f"{last.context:,} tokens each, then {STOPS[last.stopped_by]}{used}"]
    if found.computed is not None:
        said.append(f"computed for that length: {found.computed}")
    if len({one.admitted for one in found.ramps}) > 1:
        said.append(f"by launch: {', '.join(str(one.admitted) for one in found.ramps)}")
    return TableCell(f"{found.admitted:g}" + notes.mark("; ".join(said)))


def _cells(told: Provenance, notes: Footnotes) -> tuple[TableCell, TableCell]:
    tokens, limit = told.kv_tokens, told.context_limit
    if tokens is None:
        return TableCell(DASH, Tone.DIM), TableCell(DASH, Tone.DIM)
    if limit is not None and limit < LONG:
        users = TableCell(DASH + notes.mark(f"the engine serves requests of up to {limit:,} tokens"), Tone.DIM)
    else:
        users = TableCell(str(concurrent_users(tokens, LONG)))
    return TableCell(f"{_tokens_text(tokens)} tokens"), users


def _tokens_text(tokens: int) -> str:
    """Format tokens in the published way: 355K, 1.4M."""
    if tokens >= 1_000_000:
        return f"{tokens / 1_000_000:.1f}M"
    return f"{tokens / 1000:.0f}K" if tokens >= 1000 else str(tokens)
