"""Lines of the doctor's findings: failures first, passed checks last and short.

Owns: their order and inks. Must not know: how they were found.

Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from sparkdash.domain.finding import Diagnosis, Finding, Status
from sparkdash.tui.ink import EMPTY, Ink, Line, inked, join, wrap

INKS = {
    Status.FAIL: Ink.BAD,
    Status.WARN: Ink.WARN,
    Status.UNKNOWN: Ink.DIM,
    Status.NOTE: Ink.PLAIN,
    Status.OK: Ink.GOOD,
}
"""Inks by status, worst first."""
INDENT = 9


def finding_lines(diagnosis: Diagnosis, width: int) -> list[Line]:
    """Format the counts, every finding that is not ok with evidence and fix, then the names of passed checks."""
    found = diagnosis.findings
    out = [_counts(found)]
    for status in INKS:
        if status is not Status.OK:
            out += [line for one in found if one.status is status for line in (EMPTY, *_entry(one, width))]
    if well := ", ".join(one.name for one in found if one.status is Status.OK):
        out += [EMPTY, *_block(Status.OK, wrap(well, width - INDENT, Ink.DIM))]
    return out


def _counts(found: Iterable[Finding]) -> Line:
    counts = Counter(one.status for one in found)
    return join(
        [inked(f"{counts[status]} {status}", ink) for status, ink in INKS.items() if counts[status]], inked("  ")
    )


def _entry(one: Finding, width: int) -> list[Line]:
    told = [inked(one.name, Ink.STRONG), *wrap(one.evidence, width - INDENT)]
    return _block(one.status, [*told, *wrap(f"\u2192 {one.fix}", width - INDENT, Ink.STRONG)] if one.fix else told)


def _block(status: Status, rows: list[Line]) -> list[Line]:
    first, *rest = rows
    return [inked(f"{status:<{INDENT}}", INKS[status]) + first, *(inked(" " * INDENT) + row for row in rest)]
