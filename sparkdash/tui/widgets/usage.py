"""Table of the requests of a period, added up by profile, client, key, hour or day.

Owns: the columns. Must not know: how requests are added up.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from sparkdash.domain.history import UsageReport, UsageTotals
from sparkdash.tui.ink import EMPTY, Ink, Line, align_right, clip, inked, pad, shorten
from sparkdash.tui.mirror import View
from sparkdash.tui.widgets.table import Table, TableRow
from sparkdash.units import DASH, duration, number, percent

LEAST_GROUP, WIDEST_GROUP = 16, 32
TOTAL = "all"


class UsageColumn(NamedTuple):
    """Column of the table; on a narrow terminal the columns with the highest `gives_way` are left out."""

    name: str
    cells: int
    gives_way: int
    text: Callable[[UsageTotals], str]


def many(count: int) -> str:
    """Format a count in four figures: "604", "96.1 M"."""
    for unit, step in (("G", 1_000_000_000), ("M", 1_000_000), ("k", 10_000)):
        if count >= step:
            return f"{count / (1000 if unit == 'k' else step):.1f} {unit}"
    return str(count)


def _pair(first: str, second: str) -> str:
    return DASH if first == second == DASH else f"{first} / {second}"


def _per_1k(one: UsageTotals) -> float | None:
    """Return the energy of a thousand generated tokens."""
    return one.energy_wh / one.output_tokens * 1000 if one.energy_wh is not None and one.output_tokens else None


COLUMNS = (
    UsageColumn("requests", 10, 0, lambda one: many(one.requests)),
    UsageColumn("prompt", 9, 2, lambda one: many(one.prompt_tokens)),
    UsageColumn(
        "cached", 8, 3, lambda one: percent(one.cached_tokens / one.prompt_tokens if one.prompt_tokens else None)
    ),
    UsageColumn("out", 9, 1, lambda one: many(one.output_tokens)),
    UsageColumn("think", 9, 6, lambda one: many(one.reasoning_tokens) if one.reasoning_tokens else DASH),
    UsageColumn("wait p95", 10, 5, lambda one: duration(one.wait_s.p95)),
    UsageColumn("ttft p50/95", 15, 4, lambda one: _pair(number(one.ttft_s.p50, 2), number(one.ttft_s.p95, 2, " s"))),
    UsageColumn("tok/s p50", 11, 3, lambda one: number(one.decode_tok_s.p50, 1)),
    UsageColumn("Wh", 8, 5, lambda one: number(one.energy_wh, 1)),
    UsageColumn("Wh per 1k", 11, 7, lambda one: number(_per_1k(one), 2)),
    UsageColumn("errors", 8, 2, lambda one: str(one.errors + one.gone) if one.errors + one.gone else DASH),
)


def columns_for(width: int) -> list[UsageColumn]:
    """Return the columns that fit beside the group's name."""
    found = list(COLUMNS)
    while sum(one.cells for one in found) + LEAST_GROUP + 1 > width and len(found) > 1:
        found.remove(max(found, key=lambda one: one.gives_way))
    return found


class UsageTable(Table):
    """Table of the groups, with their sum above them. `report` is set by the page."""

    title = "requests"
    nothing = "No request was recorded in this period."
    report: UsageReport | None = None

    def head(self, width: int) -> Line:
        """Return the column titles."""
        columns = columns_for(width)
        by = f"{self.report.by}, whole hours" if self.report else ""
        return (
            inked(" ")
            + pad(inked(by, Ink.DIM), group_cells(width, columns))
            + inked("".join(f"{one.name:>{one.cells}}" for one in columns), Ink.DIM)
        )

    def rows(self, view: View, width: int) -> list[TableRow]:  # noqa: ARG002 - they come from the report
        """Return the sum, and a row for each group."""
        if self.report is None or not self.report.rows:
            return []
        columns = columns_for(width)
        rows = [TableRow(one.group, partial(totals_line, one, columns, width), one.group) for one in self.report.rows]
        whole = partial(totals_line, self.report.total, columns, width, sum_of=len(rows))
        return [*rows, TableRow(TOTAL, whole)] if len(rows) > 1 else rows


def group_cells(width: int, columns: list[UsageColumn]) -> int:
    """Return the cells of the group's name."""
    return min(width - 1 - sum(one.cells for one in columns), WIDEST_GROUP)


def totals_line(one: UsageTotals, columns: list[UsageColumn], width: int, sum_of: int = 0) -> Line:
    """Format the row of a group; `sum_of` groups are added up in that of all."""
    cells = group_cells(width, columns) - 1
    name = inked(f"all {sum_of}", Ink.STRONG) if sum_of else inked(shorten(one.group, cells))
    line = inked(" ") + pad(name, cells) + inked(" ")
    for column in columns:
        told = column.text(one)
        bad = column.name == "errors" and told != DASH
        line += align_right(inked(told, Ink.BAD if bad else Ink.DIM if told == DASH else Ink.PLAIN), column.cells)
    return clip(line or EMPTY, width)
