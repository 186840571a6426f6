"""Samples of a run that do not count, by reason, and damaged lines of its records.

Owns: how reasons are added up, and the words. Must not know: why anything is void (measure/voids.py).
Rule: reasons that differ in their figures alone are one reason; the first stands for all.
Pure.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from sparkdash.bench.report.blocks import Block, Grid, Heading, TableCell, TextBlock, Tone
from sparkdash.bench.report.report import Report, VoidCount
from sparkdash.bench.results import Results

_FIGURE = re.compile(r"\d+(?:[.,]\d+)*")


def count_voids(results: Results) -> tuple[VoidCount, ...]:
    """Count the void samples of each arm by reason, most frequent first."""
    found = ((one.arm, one.void) for one in results.samples if one.void is not None)
    counts: Counter[tuple[str, str]] = Counter()
    first: dict[tuple[str, str], str] = {}
    for arm, reason in found:
        alike = arm, _FIGURE.sub("#", reason)
        counts[alike] += 1
        first.setdefault(alike, reason)
    return tuple(VoidCount(arm=alike[0], reason=first[alike], samples=count) for alike, count in counts.most_common())


def void_text(voids: Iterable[VoidCount]) -> str:
    """Return the reasons with their counts: `2 samples do not count: 2 the client was 7.7 ms late`."""
    reasons: Counter[str] = Counter()
    for one in voids:
        reasons[one.reason] += one.samples
    total = sum(reasons.values())
    if not total:
        return ""
    verb = "1 sample does not count" if total == 1 else f"{total} samples do not count"
    return f"{verb}: {'; '.join(f'{count} {reason}' for reason, count in reasons.most_common())}"


def damage_text(damaged: int) -> str:
    """Return the words for damaged lines; empty without any."""
    if not damaged:
        return ""
    lines = "1 line of records.jsonl is" if damaged == 1 else f"{damaged} lines of records.jsonl are"
    return f"{lines} damaged and not counted; what they held is missing"


def void_tables(report: Report) -> Iterator[Block]:
    """Table of the reasons by arm, and the number of damaged lines."""
    if not report.voids and not report.damaged:
        return
    yield Heading(2, "What does not count")
    if report.damaged:
        yield TextBlock((f"{damage_text(report.damaged)}.",), Tone.WORSE)
    if report.voids:
        rows = tuple((TableCell(one.arm), TableCell(str(one.samples)), TableCell(one.reason)) for one in report.voids)
        yield Grid(head=("Arm", "Samples", "Reason"), rows=rows)
