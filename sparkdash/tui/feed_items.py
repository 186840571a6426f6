"""Items of the daemon's feed, as the dashboard reads them.

Must not know how it is read: the first frame is drawn before the client of the control API is loaded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparkdash.domain.event import Event
from sparkdash.domain.state import Snapshot

if TYPE_CHECKING:
    from sparkdash.domain.history import RecentFigures


@dataclass(frozen=True, slots=True)
class Disconnected:
    """State of the feed while the link is lost; the next item ends it."""


@dataclass(frozen=True, slots=True)
class RecordedPast:
    """Records of the last minutes: the figures of sparklines, and the memory."""

    figures: RecentFigures
    memory: RecentFigures


Item = Snapshot | Event | Disconnected
