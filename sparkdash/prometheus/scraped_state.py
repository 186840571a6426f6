"""ScrapedState: everything that one page of metrics is made of, and the label values that its families share.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from sparkdash.domain.engine import Engine
from sparkdash.domain.node import LOCAL
from sparkdash.domain.profile import ProfileSummary
from sparkdash.domain.state import Snapshot
from sparkdash.prometheus.request_totals import RequestTotals
from sparkdash.prometheus.swap_totals import SwapTotals
from sparkdash.telemetry.totals import EngineTotals


@dataclass(frozen=True)
class ScrapedState:
    """State of the daemon at one scrape. `now` is Unix seconds."""

    snapshot: Snapshot
    now: float
    engines: Mapping[str, EngineTotals]
    requests: RequestTotals
    swaps: SwapTotals
    last_engines: Mapping[str, Engine]
    """Last engine of each profile, also after its end."""
    store_bytes: int | None = None
    """Size of the database with its journal; None while it cannot be told."""
    store_limit_bytes: int | None = None

    @cached_property
    def summaries(self) -> Mapping[str, ProfileSummary]:
        """Profiles by name."""
        return {profile.name: profile for profile in self.snapshot.profiles}

    def engine_labels(self, profile: str) -> list[str]:
        """Values of the labels `profile`, `engine` and `node`."""
        engine = self.snapshot.engines.get(profile) or self.last_engines.get(profile)
        if engine is not None:
            return [profile, engine.kind, engine.nodes[0] if engine.nodes else LOCAL]
        summary = self.summaries.get(profile)
        return [profile, summary.engine if summary else "", LOCAL]
