"""NarrowedHistory: the recorded past as a key for some models may read it.

Owns: that every selection is cut to the key's own profiles. Figures of a box stay visible as in the snapshot, but for
those that tell of every engine's work. Must not know routes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sparkdash.access.key import Key
from sparkdash.domain.history.answers import (
    FigureList,
    MarkList,
    PastRequests,
    RecentFigures,
    Series,
    UsageReport,
)
from sparkdash.domain.history.figures import OF_ALL
from sparkdash.domain.history.selections import (
    MarkSelection,
    RecentSelection,
    RequestSelection,
    SeriesSelection,
    UsageSelection,
    Visible,
)
from sparkdash.errors import AdmissionError
from sparkdash.gateway.admission.access import whole_box_refused
from sparkdash.gateway.ports import HistoryPort


class NarrowedHistory:
    """The past of one key's profiles. `own` gives their names now."""

    def __init__(self, whole: HistoryPort, key: Key, own: Callable[[], frozenset[str]]) -> None:
        self._whole = whole
        self._key = key
        self._own = own

    async def figures(self, visible: Visible = None) -> FigureList:  # noqa: ARG002 - the key decides
        """List the figures, and which own profiles have records."""
        return await self._whole.figures(self._own())

    async def series(self, selection: SeriesSelection) -> Series:
        """Read a figure of an own profile, or of a box. Raises AdmissionError for another profile."""
        self._check(selection.profile)
        if not selection.profile and selection.figure in OF_ALL:
            raise whole_box_refused(self._key, f"{selection.figure} of a box tells of all of them")
        return await self._whole.series(replace(selection, visible=self._own()))

    async def recent(self, selection: RecentSelection) -> RecentFigures:
        """Read figures of own profiles and of the box."""
        found = await self._whole.recent(replace(selection, visible=self._own()))
        return found.replace(series=tuple(one for one in found.series if one.profile or one.figure not in OF_ALL))

    async def usage(self, selection: UsageSelection) -> UsageReport:
        """Add up requests for own profiles."""
        self._check(selection.profile)
        return await self._whole.usage(replace(selection, visible=self._own()))

    async def requests(self, selection: RequestSelection) -> PastRequests:
        """List ended requests for own profiles."""
        self._check(selection.profile)
        return await self._whole.requests(replace(selection, visible=self._own()))

    async def marks(self, selection: MarkSelection) -> MarkList:
        """List events of own profiles."""
        self._check(selection.profile)
        return await self._whole.marks(replace(selection, visible=self._own()))

    def _check(self, profile: str | None) -> None:
        if profile and profile not in self._own():
            raise AdmissionError(
                f"The key {self._key.name!r} may not see {profile!r}.",
                code="model_not_allowed",
                status=403,
                hint="`GET /api/profiles` lists the key's own models.",
            )
