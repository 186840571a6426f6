"""Pending rows: records that are not handed to the store's thread yet.

Owns: the rows, their order, and how many are held. Must not know when they are written.
"""

from __future__ import annotations

from sparkdash.store import rows, usage
from sparkdash.store.transactions import Rows

HELD = 10_000
"""Rows that are held until the next try; beyond it the oldest are lost."""


class PendingRows:
    """Rows of requests, usage by keys, and all other rows with their statements."""

    def __init__(self) -> None:
        self._requests: list[rows.Row] = []
        self._others: list[tuple[str, rows.Row]] = []
        self._used: list[usage.Used] = []

    def __bool__(self) -> bool:
        return bool(self._requests or self._others)

    def add_request(self, row: rows.Row) -> None:
        """Add the row of a finished request."""
        self._requests.append(row)

    def add_usage(self, used: usage.Used) -> None:
        """Add the usage of a request that was added too."""
        self._used.append(used)

    def add(self, statement: str, row: rows.Row) -> None:
        """Add any other row with its statement."""
        self._others.append((statement, row))

    def add_before(self, earlier: list[tuple[str, rows.Row]]) -> None:
        """Add rows that are written before the others."""
        self._others[:0] = earlier

    def take(self) -> Rows:
        """Take all rows for the thread; usage is added up to one row for each key and day."""
        taken = self._requests, [*self._others, *((usage.PUT, row) for row in usage.summed(self._used))]
        self._requests, self._others, self._used = [], [], []
        return taken

    def put_back(self, taken: Rows) -> None:
        """Put rows of a failed write back, before the rows that came since."""
        self._requests = [*taken[0], *self._requests][-HELD:]
        self._others = [*taken[1], *self._others][-HELD:]
