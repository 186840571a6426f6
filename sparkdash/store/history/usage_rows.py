"""Rows of requests added up by hour or day, and adding them up further.

Owns: the order of their columns. Must not know which rows an answer needs, nor threads.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

from sparkdash.domain.history.answers import UsageTotals
from sparkdash.domain.history.sketch import SketchSum
from sparkdash.store.history.usage_sums import COLUMNS

_SUMMED = 7
"""Columns of plain sums after the four of the key."""
UsageRow = tuple[Any, ...]
K = TypeVar("K")


class SummedUsage:
    """Sum of the rows of one group; a value of it is made once, at the end."""

    __slots__ = ("energy_wh", "numbers", "sketches", "wait_s", "waited")

    def __init__(self) -> None:
        self.numbers = [0] * _SUMMED
        self.energy_wh: float | None = None
        self.waited = 0
        self.wait_s = 0.0
        self.sketches = (SketchSum(), SketchSum(), SketchSum())

    def add(self, row: UsageRow) -> None:
        """Add a row, without its key."""
        self.numbers = [mine + one for mine, one in zip(self.numbers, row[4:11], strict=True)]
        if row[11] is not None:
            self.energy_wh = (self.energy_wh or 0.0) + row[11]
        self.waited += row[12]
        self.wait_s += row[13]
        for sketch, packed in zip(self.sketches, row[14:], strict=False):
            sketch.add(packed)

    def plus(self, other: SummedUsage) -> None:
        """Add another group."""
        self.add((None,) * 4 + (*other.numbers, other.energy_wh, other.waited, other.wait_s))
        for sketch, more in zip(self.sketches, other.sketches, strict=True):
            sketch.plus(more)

    def totals(self, group: str, start: float | None) -> UsageTotals:
        """Return the sum as a value."""
        requests, errors, gone, prompt, cached, output, reasoning = self.numbers
        waits, ttfts, rates = (sketch.usual_quantiles() for sketch in self.sketches)
        return UsageTotals(
            group=group,
            start=start,
            requests=requests,
            errors=errors,
            gone=gone,
            prompt_tokens=prompt,
            cached_tokens=cached,
            output_tokens=output,
            reasoning_tokens=reasoning,
            energy_wh=self.energy_wh,
            waited=self.waited,
            wait_total_s=self.wait_s,
            wait_s=waits,
            ttft_s=ttfts,
            decode_tok_s=rates,
        )

    def row(self, key: tuple[object, ...]) -> UsageRow:
        """Return the row of a table, with the columns of COLUMNS."""
        packed = (sketch.sketch().pack() for sketch in self.sketches)
        return (*key, *self.numbers, self.energy_wh, self.waited, self.wait_s, *packed)


class UsageSpan(NamedTuple):
    """Rows of one table, from `begin` on and before `end`."""

    table: str
    begin: int
    end: int


def group_rows(rows: Iterable[UsageRow], name: Callable[[UsageRow], K]) -> dict[K, SummedUsage]:
    """Add up rows by their group's name."""
    groups: dict[K, SummedUsage] = {}
    for row in rows:
        key = name(row)
        if key not in groups:
            groups[key] = SummedUsage()
        groups[key].add(row)
    return groups


def select_rows(
    database: sqlite3.Connection, span: UsageSpan, wanted: Iterable[tuple[str, str]] = ()
) -> Iterator[UsageRow]:
    """Read the rows of a span whose columns have the wanted values."""
    wanted = list(wanted)
    where = "".join(f" AND {column} = ?" for column, _ in wanted)
    query = f"SELECT {COLUMNS} FROM {span.table} WHERE start >= ? AND start < ?{where}"  # noqa: S608 - constants
    yield from database.execute(query, (span.begin, span.end, *(name for _, name in wanted)))
