"""Limits of figures: when an alert begins, and when it ends."""

from __future__ import annotations

from sparkdash.daemon.samples import Alerting, AlertWatch
from sparkdash.domain.event import AlertsChanged, Fact, Notice, SampleTaken
from sparkdash.domain.metric import EngineSample, Gpu, Metric, Sample
from sparkdash.settings import Alert

SLOW = Alert(figure="ttft_p95_s", above=5, for_s=10, profiles=("big*",))
HOT = Alert(figure="gpu_temperature_c", above=85)


def sample(at: float, ttft: float | None = 1.0, degrees: float = 60.0) -> Sample:
    values = {Metric.TTFT_P95: ttft}
    engines = {name: EngineSample(at=at, values=values) for name in ("big-one", "small")}
    return Sample(at=at, engines=engines, gpu=Gpu(temperature_c=degrees))


def test_a_limit_alerts_once_it_was_passed_for_its_time_and_ends_with_the_figure() -> None:
    watch = AlertWatch()
    seen = [(at, ttft) for at, ttft in ((0, 6.0), (5, 4.0), (6, 6.0), (15, 7.0), (16, 8.0), (20, None), (21, 9.0))]
    active = [watch.observe(sample(at, ttft), (SLOW,)) for at, ttft in seen]
    assert [len(found) for found in active] == [0, 0, 0, 0, 1, 0, 0]
    (one,) = active[4]
    assert (one.profile, one.value, one.limit, one.above, one.since) == ("big-one", 8.0, 5.0, True, 6.0)
    assert one.text == "ttft p95 of big-one is 8 s, above 5 s."


def test_a_change_is_published_once() -> None:
    told: list[Fact] = []
    limits = [HOT, Alert(figure="nonsense", below=1)]
    alerting = Alerting(told.append, lambda: limits)
    for at, degrees in ((1.0, 60.0), (2.0, 90.0), (3.0, 91.0), (4.0, 70.0)):
        alerting.publish(SampleTaken(sample=sample(at, degrees=degrees)))
    changes = [fact for fact in told if isinstance(fact, AlertsChanged)]
    assert [[one.value for one in change.alerts] for change in changes] == [[90.0], []]
    assert [fact.code for fact in told if isinstance(fact, Notice)] == ["alert_unknown"]
    assert changes[0].alerts[0].text == "temperature of the box is 90 °C, above 85 °C."
