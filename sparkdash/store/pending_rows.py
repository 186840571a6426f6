"""Pending rows: records that are not handed to the store's thread yet.

Owns: the rows, their order, and how many are held. Must not know when they are written.
"""

from __future__ import annotations

from sparkdash.domain.lease import Request
from sparkdash.store import rows, usage
from sparkdash.store.history.seconds import SecondRow
from sparkdash.store.history.usage_sums import UsageSums
from sparkdash.store.transactions import Rows

HELD = 10_000
"""Rows that are held until the next try; beyond it the oldest are lost."""
SECONDS_HELD = 3_000
"""Rows of figures that are held: ten minutes of five engines. Figures are the first to be lost on a full disk."""


class PendingRows:
    """Rows of requests, usage by keys, and all other rows with their statements."""

    def __init__(self) -> None:
        self._requests: list[rows.Row] = []
        self._others: list[tuple[str, rows.Row]] = []
        self._used: list[usage.Used] = []
        self._sums = UsageSums()
        self._seconds: list[SecondRow] = []

    def __bool__(self) -> bool:
        return bool(self._requests or self._others or self._seconds)

    def add_request(self, request: Request) -> None:
        """Add a finished request: its row, and its part of the sums by hour."""
        self._requests.append(rows.request_row(request))
        self._sums.add(request)

    def add_usage(self, used: usage.Used) -> None:
        """Add the usage of a request that was added too."""
        self._used.append(used)

    def add_seconds(self, seconds: list[SecondRow]) -> None:
        """Add figures of whole seconds."""
        self._seconds += seconds

    def add(self, statement: str, row: rows.Row) -> None:
        """Add any other row with its statement."""
        self._others.append((statement, row))

    def add_before(self, earlier: list[tuple[str, rows.Row]]) -> None:
        """Add rows that are written before the others."""
        self._others[:0] = earlier

    def take(self) -> Rows:
        """Take all rows for the thread; usage is added up to one row for each key and day."""
        used = ((usage.PUT, row) for row in usage.summed(self._used))
        taken = self._requests, [*self._others, *used, *self._sums.take()], self._seconds
        self._requests, self._others, self._used, self._seconds = [], [], [], []
        return taken

    def put_back(self, taken: Rows) -> None:
        """Put rows of a failed write back, before the rows that came since."""
        self._requests = [*taken[0], *self._requests][-HELD:]
        self._others = [*taken[1], *self._others][-HELD:]
        self._seconds = [*taken[2], *self._seconds][-SECONDS_HELD:]
