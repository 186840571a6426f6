"""Functions that make one family of metrics each.

Owns: the prefix of all names. Must not know where the figures come from. Loads prometheus_client.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as MetricFamily

from sparkdash.telemetry.totals import LatencyHistogram

ENGINE = ("profile", "engine", "node")
"""Labels of an engine's metrics."""
Rows = Iterable[tuple[Sequence[str], float | None]]
"""Values of the labels, and the figure; None is unknown and left out."""


def gauge(name: str, documentation: str, labels: Sequence[str], rows: Rows) -> MetricFamily:
    """Make a gauge."""
    family = GaugeMetricFamily(f"sparkdash_{name}", documentation, labels=labels)
    for values, figure in rows:
        if figure is not None:
            family.add_metric(values, figure)
    return family


def counter(name: str, documentation: str, labels: Sequence[str], rows: Rows) -> MetricFamily:
    """Make a counter; `name` is without `_total`."""
    family = CounterMetricFamily(f"sparkdash_{name}", documentation, labels=labels)
    for values, figure in rows:
        if figure is not None:
            family.add_metric(values, figure)
    return family


def histogram(
    name: str, documentation: str, labels: Sequence[str], rows: Iterable[tuple[Sequence[str], LatencyHistogram]]
) -> MetricFamily:
    """Make a histogram of seconds."""
    family = HistogramMetricFamily(f"sparkdash_{name}", documentation, labels=labels)
    for values, counted in rows:
        family.add_metric(values, list(counted.cumulative()), counted.sum_s)
    return family
