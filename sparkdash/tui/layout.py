"""Heights of the dashboard's panels at each size of the terminal.

Rule: the heights add up to the rows there are, so that no frame is ever clipped; the rows of a load and of the engines
beside the large one come out of the large chart, so that every panel below it keeps its place. Pure.
"""

from enum import StrEnum
from typing import NamedTuple

COMPACT_BELOW = 22
"""Rows of the terminal below which the dashboard has no frames."""
TWO_COLUMNS_FROM = 180
"""Columns from which requests and log stand beside the large figure: fewer would cost the requests their figures."""
BARS = 3
LEAST_REQUESTS, LEAST_CARD, LEAST_LIST, LEAST_POWER = 4, 8, 6, 6
MOST_CARD, MOST_SWAPS = 26, 16
MOST_MEMORY_CHART = 8
LOW_CHART, LEAST_CHART, TABLE_EDGES = 9, 14, 3
"""Rows of the history's chart without and with frames, and of a table's titles, sum and a blank."""
PANELS_FROM = 46
"""Rows below the bars from which two columns have the panels of today, of the weeks and of power."""


class Arrangement(StrEnum):
    """Share of the dashboard's rows among its parts."""

    ALL = "all"
    HERO = "hero"
    """The large figure and its chart, with the memory in its least rows."""
    ROWS = "rows"
    """Engines and requests, with the large figure in its least rows."""

    @property
    def after(self) -> "Arrangement":
        every = list(Arrangement)
        return every[(every.index(self) + 1) % len(every)]


class Contents(NamedTuple):
    """Rows that the panels ask for."""

    beside: int
    memory: int
    gpu: int
    charted: bool = True


class Heights(NamedTuple):
    """Rows of each panel; 0 hides it."""

    card: int
    beside: int
    memory_chart: int
    requests: int
    swaps: int = 0
    log: int = 0
    power: int = 0
    today: int = 0
    weeks: int = 0


def chart_height(rows: int, groups: int) -> int:
    """Return the rows of the history's chart: what a table of `groups` leaves, three quarters at most."""
    if is_compact(rows):
        return LOW_CHART
    room = rows - BARS
    return max(LEAST_CHART, min(room - groups - TABLE_EDGES, room * 3 // 4))


def is_compact(rows: int) -> bool:
    return rows < COMPACT_BELOW


def has_two_columns(columns: int, rows: int, shown: Arrangement = Arrangement.ALL) -> bool:
    """Whether requests and log stand right of the large figure."""
    return columns >= TWO_COLUMNS_FROM and not is_compact(rows) and shown is not Arrangement.HERO


def left_cells(columns: int) -> int:
    return max(92, columns - max(88, int(columns * 0.465)))


def heights(columns: int, rows: int, wanted: Contents, shown: Arrangement = Arrangement.ALL) -> Heights:
    if is_compact(rows):
        return _compact(rows - 2 - wanted.memory, wanted, shown)
    if shown is Arrangement.HERO:
        return _hero(rows - BARS, wanted)
    if has_two_columns(columns, rows, shown):
        return _two_columns(rows - BARS, wanted, shown)
    return _one_column(rows - BARS, wanted, shown)


def _compact(rows: int, wanted: Contents, shown: Arrangement) -> Heights:
    card = {Arrangement.ALL: max(rows - 5, 4), Arrangement.HERO: rows, Arrangement.ROWS: 4}[shown]
    requests = max(rows - card, 0)
    beside = min(wanted.beside, max(rows - requests - 4, 0))
    return Heights(max(rows - requests - beside, 1), beside, 0, requests)


def _hero(rows: int, wanted: Contents) -> Heights:
    rest = rows - wanted.memory - wanted.gpu
    beside = max(min(wanted.beside, rest - LEAST_CARD), 0)
    return Heights(max(rest - beside, 1), beside, 0, 0)


def _one_column(rows: int, wanted: Contents, shown: Arrangement) -> Heights:
    is_all = shown is Arrangement.ALL
    chart = min(max((rows - 29) // 2, 0), MOST_MEMORY_CHART) if wanted.charted and is_all else 0
    rest = rows - wanted.memory - chart - wanted.gpu
    beside = max(min(wanted.beside, rest - LEAST_CARD - LEAST_REQUESTS), min(wanted.beside, 1))
    rest -= beside
    card = MOST_CARD if is_all else LEAST_CARD
    requests = max(rest - card, int(rest * 0.34), LEAST_REQUESTS)
    return Heights(max(rest - requests, 1), beside, chart, requests)


def _two_columns(rows: int, wanted: Contents, shown: Arrangement) -> Heights:
    is_all = shown is Arrangement.ALL
    chart = min(max((rows - 25) // 5, 0), MOST_MEMORY_CHART) if wanted.charted and is_all else 0
    rest = rows - wanted.memory - chart - wanted.gpu
    least = LEAST_CARD + LEAST_LIST + 3
    card = rest if rest < least else min(max(int(rest * 0.52), LEAST_CARD), MOST_CARD if is_all else LEAST_CARD)
    below = rest - card
    power = min(below // 3, rows // 6) if rows >= PANELS_FROM else 0
    power = power if power >= LEAST_POWER else 0
    below -= power
    swaps = min(below, (rows // 6 if power else MOST_SWAPS) if is_all else below)
    card += below - swaps
    beside = min(wanted.beside, max(card - LEAST_CARD, 0))
    return _with_right(Heights(card - beside, beside, chart, 0, swaps, power=power), rows, is_all=is_all)


def _with_right(left: Heights, rows: int, *, is_all: bool) -> Heights:
    today = min(rows // 6, 14) if rows >= PANELS_FROM and is_all else 0
    weeks = min(rows // 5, 16) if today else 0
    rest = rows - today - weeks
    requests = max(rest * 6 // 10, LEAST_REQUESTS)
    return left._replace(requests=requests, log=rest - requests, today=today, weeks=weeks)
