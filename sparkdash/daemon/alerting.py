"""Alerting: publishes the alerts of each sample when they change, and names figures that do not exist.

Owns: what was published last. Must not know: how a limit is judged, who hears of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sparkdash.domain.event import AlertsChanged, Fact, Level, Notice, SampleTaken
from sparkdash.hooks.alert_watch import AlertWatch
from sparkdash.settings import Alert


class Alerting:
    """Sink of the collector's facts: passes each on, and the alerts of a sample behind it."""

    def __init__(self, publish: Callable[[Fact], object], alerts: Callable[[], Sequence[Alert]]) -> None:
        self._publish = publish
        self._alerts = alerts
        self._watch = AlertWatch()
        self._told: frozenset[tuple[str, str, str]] = frozenset()
        self._unknown: frozenset[str] = frozenset()

    def publish(self, fact: Fact) -> None:
        """Publish a fact, and after a sample the alerts that began or ended with it."""
        self._publish(fact)
        if not isinstance(fact, SampleTaken):
            return
        limits = self._alerts()
        active = self._watch.observe(fact.sample, limits)
        now = frozenset((one.figure, one.profile, one.node) for one in active)
        if now != self._told:
            self._told = now
            self._publish(AlertsChanged(alerts=active))
        unknown = frozenset(self._watch.unknown_figures(limits))
        for name in sorted(unknown - self._unknown):
            text = (
                f"No figure is called {name!r}, which an alert of config.toml names. "
                "docs/house.md lists the usual ones."
            )
            self._publish(Notice(level=Level.WARNING, code="alert_unknown", text=text))
        self._unknown = unknown
