"""PastReader: the past requests that fit a filter, read from the daemon a part at a time.

Owns: how far was read, and what was read but not shown yet. Must not know widgets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkdash.domain.history import RequestOrder
from sparkdash.domain.lease import Request
from sparkdash.tui.lines.request_filter import RequestFilter

if TYPE_CHECKING:
    from sparkdash.tui.link import DaemonLink

PART_ROWS, PAGE_ROWS, MOST_PAGES = 200, 500, 20
"""Rows of one part, rows of one answer, and answers that are read for one part of a filter that few rows fit."""


class PastReader:
    """Reader of one list. Client and profile are looked for here, where parts of names count."""

    def __init__(self, link: DaemonLink, wanted: RequestFilter, order: RequestOrder) -> None:
        self._link = link
        self._wanted = wanted
        self._order = order
        self._after: str | None = None
        self._surplus: list[Request] = []
        self._is_read = False
        self.looked_at = 0
        """Requests that were read, whether they fit or not."""

    @property
    def ended(self) -> bool:
        """Whether there is nothing more."""
        return self._is_read and not self._surplus

    async def more(self) -> tuple[Request, ...]:
        """Return the next part; it may be small, or empty, before the end. Raises SparkdashError."""
        found, pages = self._surplus, 0
        while not self._is_read and len(found) < PART_ROWS and pages < MOST_PAGES:
            page = await self._link.history_requests(
                status=self._wanted.exact_status,
                min_ttft=self._wanted.min_ttft,
                sort=self._order,
                limit=PAGE_ROWS,
                after=self._after,
            )
            found += [one for one in page.requests if self._wanted.fits(one)]
            self.looked_at += len(page.requests)
            self._after, self._is_read, pages = page.next, page.next is None, pages + 1
        self._surplus = found[PART_ROWS:]
        return tuple(found[:PART_ROWS])
