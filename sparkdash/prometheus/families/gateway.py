"""Families of the gateway: requests, waits, the queue and swaps.

Loads prometheus_client.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from prometheus_client.metrics_core import Metric as MetricFamily

from sparkdash.domain.lease import Request, RequestState
from sparkdash.prometheus.families.making import counter, gauge, histogram
from sparkdash.prometheus.request_totals import OTHER
from sparkdash.prometheus.scraped_state import ScrapedState
from sparkdash.prometheus.swap_totals import QUEUE, SWAP, WAITS

CLIENT = ("profile", "client")


def families(state: ScrapedState) -> Iterator[MetricFamily]:
    """Make the families."""
    requests, swaps = state.requests, state.swaps
    yield counter(
        "requests",
        "Requests that ended at the gateway.",
        ("profile", "client", "route", "code", "finish"),
        requests.requests.items(),
    )
    yield histogram(
        "request_duration_seconds",
        "Time from a request's arrival to its end, waits included.",
        CLIENT,
        requests.durations.items(),
    )
    yield histogram(
        "time_to_first_token_seconds",
        "Time from sending a request to the engine until its first text, without the wait for an engine.",
        CLIENT,
        requests.first_tokens.items(),
    )
    yield histogram(
        "time_per_output_token_seconds",
        "Mean time between two tokens of one answer.",
        CLIENT,
        requests.per_token.items(),
    )
    yield histogram(
        "wait_seconds",
        "Time that a request waited for its engine; requests without a wait are not in it.",
        ("profile", "reason"),
        requests.waits.items(),
    )
    yield from _queue(state)
    yield counter("swaps", "Changes of the running profiles that ended.", ("profile", "outcome"), swaps.swaps.items())
    yield histogram(
        "swap_stage_seconds", "Time that a swap spent in each stage.", ("profile", "stage"), swaps.stages.items()
    )


def _queue(state: ScrapedState) -> Iterator[MetricFamily]:
    """Make the gauges of the requests that wait now."""
    waiting: defaultdict[tuple[str, str], list[Request]] = defaultdict(list)
    for request in state.snapshot.requests.values():
        if request.state is RequestState.WAITING:
            waiting[_profile(state, request), _reason(state, request)].append(request)
    yield gauge(
        "queue_requests",
        "Requests that wait for an engine.",
        ("profile", "reason"),
        ((labels, len(each)) for labels, each in waiting.items()),
    )
    yield gauge(
        "queue_oldest_seconds",
        "Age of the oldest request that waits.",
        ("profile", "reason"),
        ((labels, max(state.now - one.started_at for one in each)) for labels, each in waiting.items()),
    )


def _profile(state: ScrapedState, request: Request) -> str:
    return request.profile if request.profile in state.summaries else OTHER


def _reason(state: ScrapedState, request: Request) -> str:
    swap = state.snapshot.swap_to(request.profile)
    return QUEUE if swap is None else WAITS.get(swap.phase, SWAP)
