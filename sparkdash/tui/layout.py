"""Heights of the dashboard's panels at each size of the terminal.

Owns: which panels are shown, and how many rows each gets. Must not know: widgets.
Rule: the heights add up to the rows there are, so that no frame is ever clipped; the rows of a load and of the engines
beside the large one come out of the large chart, so that every panel below it keeps its place.

Pure.
"""

from __future__ import annotations

from typing import NamedTuple

COMPACT_BELOW = 22
"""Rows of the terminal below which the dashboard has no frames."""
TWO_COLUMNS_FROM = 180
"""Columns from which requests and log stand beside the large figure: fewer would cost the requests their figures."""
BARS = 3
"""Rows of title bar, notice row and footer."""
LEAST_REQUESTS, LEAST_CARD, LEAST_LIST = 4, 8, 6
MOST_CARD, MOST_SWAPS = 26, 16
MOST_MEMORY_CHART = 8


class Contents(NamedTuple):
    """Rows that the panels ask for."""

    beside: int
    """Rows of the engines and loads beside the large one."""
    memory: int
    """Rows of the memory panel without its chart."""
    gpu: int
    compare: int
    """Rows of the comparison of A and B; 0 when none is marked."""
    charted: bool = True
    """Whether the memory panel has a chart to draw."""


class Heights(NamedTuple):
    """Rows of each panel; 0 hides it."""

    card: int
    beside: int
    memory_chart: int
    requests: int
    compare: int = 0
    swaps: int = 0
    log: int = 0


def is_compact(rows: int) -> bool:
    """Whether the terminal is too low for frames."""
    return rows < COMPACT_BELOW


def left_cells(columns: int) -> int:
    """Return the width of the left of two columns."""
    return max(92, columns - max(88, int(columns * 0.42)))


def heights(columns: int, rows: int, wanted: Contents) -> Heights:
    """Share the rows of a terminal among the panels of the dashboard."""
    if is_compact(rows):
        return _compact(rows - 2 - wanted.memory, wanted)
    if columns >= TWO_COLUMNS_FROM:
        return _two_columns(rows - BARS, wanted)
    return _one_column(rows - BARS, wanted)


def _compact(rows: int, wanted: Contents) -> Heights:
    requests = min(5, max(rows - 4, 0))
    beside = min(wanted.beside, max(rows - requests - 4, 0))
    return Heights(max(rows - requests - beside, 1), beside, 0, requests)


def _one_column(rows: int, wanted: Contents) -> Heights:
    chart = min(max((rows - 29) // 2, 0), MOST_MEMORY_CHART) if wanted.charted else 0
    rest = rows - wanted.memory - chart - wanted.gpu
    beside = max(min(wanted.beside, rest - LEAST_CARD - LEAST_REQUESTS), min(wanted.beside, 1))
    rest -= beside
    requests = max(rest - MOST_CARD, int(rest * 0.34), LEAST_REQUESTS)
    return Heights(max(rest - requests, 1), beside, chart, requests)


def _two_columns(rows: int, wanted: Contents) -> Heights:
    chart = min(max((rows - 25) // 5, 0), MOST_MEMORY_CHART) if wanted.charted else 0
    rest = rows - wanted.memory - chart - wanted.gpu
    beside = min(wanted.beside, max(rest - LEAST_CARD, 0))
    rest -= beside
    card = rest if rest < LEAST_CARD + LEAST_LIST + 3 else min(max(int(rest * 0.52), LEAST_CARD), MOST_CARD)
    rest -= card
    compare = wanted.compare if rest - wanted.compare >= LEAST_LIST else 0
    swaps = min(rest - compare, MOST_SWAPS)
    card += rest - compare - swaps
    requests = max(rows * 6 // 10, LEAST_REQUESTS)
    return Heights(card, beside, chart, requests, compare, swaps, rows - requests)
