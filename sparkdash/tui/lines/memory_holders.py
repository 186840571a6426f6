"""Lines of the memory account: holders from the largest, reclaimable memory after them, each with its remedy.

Owns: their order and inks. Must not know: how the account was made.

Pure.
"""

from __future__ import annotations

from sparkdash.domain.memory import FOREIGN, Holder, Holding, MemoryAccount
from sparkdash.tui.ink import EMPTY, Ink, Line, inked, join, wrap
from sparkdash.units import MIB, size

SMALL = 16 * MIB
"""Smaller holders share one line."""
INDENT = 10
_INKS = {Holder.ENGINE: Ink.GOOD, Holder.SPARKDASH: Ink.GOOD, **dict.fromkeys(FOREIGN, Ink.WARN)}


def holder_lines(found: MemoryAccount, width: int) -> list[Line]:
    """Format the box's totals, every holder, and the notes."""
    head = [inked(f"{size(found.total)} in all", Ink.STRONG), inked(f"{size(found.available)} available")]
    if found.swap_used:
        head.append(inked(f"{size(found.swap_used)} in swap", Ink.WARN))
    small = [one for one in found.holdings if one.bytes < SMALL and one.kind is not Holder.ENGINE]
    out = [join(head, inked("  ")), EMPTY]
    for one in found.holdings:
        if one not in small:
            out += _entry(one, width)
    if small:
        out.append(_figure(sum(one.bytes for one in small)) + inked(f"{len(small)} smaller", Ink.DIM))
    for note in found.notes:
        out += [EMPTY, *wrap(note, width, Ink.DIM)]
    return out


def _entry(one: Holding, width: int) -> list[Line]:
    about = [one.kind.value, *([f"{size(one.gpu_bytes)} on the GPU"] if one.gpu_bytes else []), one.user, one.what]
    told = ", ".join(word for word in about if word and word != one.name)
    dim = one.reclaimable or one.kind is Holder.FREE
    first = _figure(one.bytes) + inked(one.name, Ink.DIM if dim else _INKS.get(one.kind, Ink.PLAIN))
    rest = [*wrap(told, width - INDENT, Ink.DIM)]
    if one.remedy:
        rest += wrap(f"\u2192 {one.remedy}", width - INDENT, Ink.STRONG)
    return [first, *(inked(" " * INDENT) + row for row in rest)]


def _figure(count: int) -> Line:
    return inked(f"{size(count):>{INDENT - 2}}  ", Ink.STRONG)
