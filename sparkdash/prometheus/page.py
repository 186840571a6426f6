"""The text of a page of metrics, classic or OpenMetrics.

Owns: the order of the families. Must not know the daemon. Loads prometheus_client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
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


def make_page(state: ScrapedState) -> Callable[[str], tuple[bytes, str]]:
    """Collect the figures now; return the function that writes them, which may run in a thread.

    The function takes the request's Accept header, and returns the page and its content type.
    """
    collected = _Collected(collect_families(state))

    def write(accept: str) -> tuple[bytes, str]:
        encode, content_type = choose_encoder(accept)
        return encode(collected), content_type

    return write
