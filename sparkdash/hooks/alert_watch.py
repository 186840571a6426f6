"""AlertWatch: finds the figures that are beyond the limits of config.toml in samples.

Owns: since when each limit is passed. Must not know: who is told.
Rule: a figure that is not measured ends its alert, as nobody knows that the limit is still passed.

Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from sparkdash.domain.event import ActiveAlert
from sparkdash.domain.history import all_figures, measured_of
from sparkdash.domain.metric import Sample
from sparkdash.settings import Alert

_Place = tuple[Alert, str, str]
"""Alert, profile and node."""


class AlertWatch:
    """Follows samples; remembers since when each limit is passed."""

    def __init__(self) -> None:
        self._since: dict[_Place, float] = {}
        self._infos = {info.name: info for info in all_figures()}

    def observe(self, sample: Sample, alerts: Sequence[Alert]) -> tuple[ActiveAlert, ...]:
        """Return the alerts that are active at this sample, in the order of their limits and engines."""
        found: list[ActiveAlert] = []
        passed: dict[_Place, float] = {}
        measured = list(measured_of(sample)) if alerts else []
        for alert in alerts:
            for one in measured:
                value = one.values.get(alert.figure)
                if value is None or not alert.watches(one.profile) or not alert.passes(value):
                    continue
                place = (alert, one.profile, one.node)
                since = passed[place] = self._since.get(place, one.at)
                if one.at - since >= alert.for_s:
                    found.append(self._active(alert, one.profile, one.node, value, since))
        self._since = passed
        return tuple(found)

    def unknown_figures(self, alerts: Sequence[Alert]) -> list[str]:
        """Return the names that no figure has."""
        return [alert.figure for alert in alerts if alert.figure not in self._infos]

    def _active(self, alert: Alert, profile: str, node: str, value: float, since: float) -> ActiveAlert:
        info = self._infos[alert.figure]
        return ActiveAlert(
            figure=alert.figure, label=info.label, unit=info.unit, profile=profile, node=node, value=value,
            limit=alert.limit, above=alert.above is not None, since=since,
        )  # fmt: skip
