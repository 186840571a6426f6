"""The text of a page of metrics, classic or OpenMetrics.

Owns: the order of the families. Must not know the daemon. Loads prometheus_client.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as MetricFamily
from prometheus_client.registry import Collector

from sparkdash.prometheus.families import box, engine, gateway
from sparkdash.prometheus.scraped_state import ScrapedState


@dataclass(frozen=True)
class _Collected(Collector):
    """Families of one scrape, in place of a registry."""

    families: tuple[MetricFamily, ...]

    def collect(self) -> Iterator[MetricFamily]:
        yield from self.families


def collect_families(state: ScrapedState) -> tuple[MetricFamily, ...]:
    """Collect all families that have a sample."""
    found = (*box.families(state), *engine.families(state), *gateway.families(state))
    return tuple(family for family in found if family.samples)


def write_page(state: ScrapedState, accept: str) -> tuple[bytes, str]:
    """Write the figures in the format that a request's Accept header asks for; return the page and its content type."""
    encode, content_type = choose_encoder(accept)
    return encode(_Collected(collect_families(state))), content_type
