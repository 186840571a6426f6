"""Alerting: publishes the alerts of each sample when they change, and names figures that do not exist."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sparkdash.bus import Bus
from sparkdash.domain.event import ActiveAlert, AlertsChanged, Fact, Level, Notice, SampleTaken
from sparkdash.domain.history import all_figures, measured_of
from sparkdash.domain.metric import Sample
from sparkdash.domain.request import Request
from sparkdash.domain.state import Snapshot
from sparkdash.log import LOG
from sparkdash.settings import Alert
from sparkdash.store import Store

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
        return [alert.figure for alert in alerts if alert.figure not in self._infos]

    def _active(self, alert: Alert, profile: str, node: str, value: float, since: float) -> ActiveAlert:
        info = self._infos[alert.figure]
        return ActiveAlert(
            figure=alert.figure, label=info.label, unit=info.unit, profile=profile, node=node, value=value,
            limit=alert.limit, above=alert.above is not None, since=since,
        )  # fmt: skip


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
                "docs/monitoring.md lists the usual ones."
            )
            self._publish(Notice(level=Level.WARNING, code="alert_unknown", text=text))
        self._unknown = unknown


def restore_past(bus: Bus, store: Store) -> None:
    past = store.past

    def recall(snapshot: Snapshot) -> Snapshot:
        notices = (*snapshot.notices, *past.notices)
        return snapshot.replace(recent=past.requests, swaps=past.swaps, figures=past.figures, notices=notices)

    bus.restore(recall)


def recording_samples(publish: Callable[[Fact], object], store: Store) -> Callable[[Fact], object]:
    def publish_and_record(fact: Fact) -> object:
        published = publish(fact)
        if isinstance(fact, SampleTaken):
            store.record_sample(fact.sample)
        return published

    return publish_and_record


def record_notices(bus: Bus, store: Store) -> None:
    """Record this daemon's notices before anybody sees them, and those that are in the snapshot already."""
    for notice in bus.snapshot.notices[::-1]:
        if notice.at is not None and notice.at > bus.snapshot.daemon.started_at:
            store.record_notice(notice)
    bus.on_notice = store.record_notice


def record_in(*recorders: Callable[[Request], object]) -> Callable[[Request], None]:
    """Return a function that tells every recorder of an ended request; one that fails costs no other."""

    def record(request: Request) -> None:
        for record in recorders:
            try:
                record(request)
            except Exception:
                LOG.exception("a request was not recorded", request=request.id, record=record.__qualname__)

    return record
