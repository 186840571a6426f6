"""Table of the requests of a period, added up by profile, client, key, hour or day."""

from __future__ import annotations

from functools import partial

from sparkdash.domain.history import UsageReport, UsageTotals
from sparkdash.tui.mirror import View
from sparkdash.tui.text import Line, Style, clip, pad, shorten, styled
from sparkdash.tui.widgets.table import Column, Table, TableRow, figures, fitting_columns, titles
from sparkdash.units import DASH, duration, number, percent

LEAST_GROUP, WIDEST_GROUP = 16, 32
TOTAL = "all"


def many(count: int) -> str:
    """Format a count in four figures: "604", "96.1 M"."""
    for unit, step in (("G", 1_000_000_000), ("M", 1_000_000), ("k", 10_000)):
        if count >= step:
            return f"{count / (1000 if unit == 'k' else step):.1f} {unit}"
    return str(count)


def _pair(first: str, second: str) -> str:
    return DASH if first == second == DASH else f"{first} / {second}"


def _per_1k(one: UsageTotals) -> float | None:
    return one.energy_wh / one.output_tokens * 1000 if one.energy_wh is not None and one.output_tokens else None


COLUMNS: tuple[Column[UsageTotals], ...] = (
    Column("requests", 10, 0, lambda one: many(one.requests)),
    Column("prompt", 9, 2, lambda one: many(one.prompt_tokens)),
    Column("cached", 8, 3, lambda one: percent(one.cached_tokens / one.prompt_tokens if one.prompt_tokens else None)),
    Column("out", 9, 1, lambda one: many(one.output_tokens)),
    Column("think", 9, 6, lambda one: many(one.reasoning_tokens) if one.reasoning_tokens else DASH),
    Column("wait p95", 10, 5, lambda one: duration(one.wait_s.p95)),
    Column("ttft p50/95", 15, 4, lambda one: _pair(number(one.ttft_s.p50, 2), number(one.ttft_s.p95, 2, " s"))),
    Column("tok/s p50", 11, 3, lambda one: number(one.decode_tok_s.p50, 1)),
    Column("Wh", 8, 5, lambda one: number(one.energy_wh, 1)),
    Column("Wh per 1k", 11, 7, lambda one: number(_per_1k(one), 2)),
    Column("errors", 8, 2, lambda one: str(one.errors + one.gone) if one.errors + one.gone else DASH),
)


def columns_for(width: int) -> list[Column[UsageTotals]]:
    return fitting_columns(COLUMNS, width - LEAST_GROUP - 1)


class UsageTable(Table):
    """Table of the groups, with their sum above them. `report` is set by the page."""

    title = "requests"
    nothing = "No request was recorded in this period."
    report: UsageReport | None = None

    def head(self, width: int) -> Line:
        columns = columns_for(width)
        by = f"{self.report.by}, whole hours" if self.report else ""
        group = pad(styled(by, Style.DIM), group_cells(width, columns))
        return styled(" ") + group + styled(titles(columns), Style.DIM)

    def rows(self, view: View, width: int) -> list[TableRow]:  # noqa: ARG002 - they come from the report
        if self.report is None or not self.report.rows:
            return []
        columns = columns_for(width)
        rows = [TableRow(one.group, partial(totals_line, one, columns, width), one.group) for one in self.report.rows]
        whole = partial(totals_line, self.report.total, columns, width, sum_of=len(rows))
        return [*rows, TableRow(TOTAL, whole)] if len(rows) > 1 else rows


def group_cells(width: int, columns: list[Column[UsageTotals]]) -> int:
    return min(width - 1 - sum(one.cells for one in columns), WIDEST_GROUP)


def totals_line(one: UsageTotals, columns: list[Column[UsageTotals]], width: int, sum_of: int = 0) -> Line:
    """Format the row of a group; `sum_of` groups are added up in that of all."""
    cells = group_cells(width, columns) - 1
    name = styled(f"all {sum_of}", Style.STRONG) if sum_of else styled(shorten(one.group, cells))
    return clip(styled(" ") + pad(name, cells) + styled(" ") + figures(columns, one, bad="errors"), width)
