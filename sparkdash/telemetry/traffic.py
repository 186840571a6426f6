"""The gateway's own count, joined to the figures that engines tell.

Owns: which engines get it. Must not know how either is measured.

Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

from sparkdash.domain.live import GatewayFigures, TrafficLook
from sparkdash.domain.metric import EngineSample, Metric

_RATES = frozenset({Metric.DECODE, Metric.DECODE_EACH})
NOTHING_PASSED = TrafficLook({}, {}, None)
QUIET = GatewayFigures(decode_tok_s=0.0)
"""Figures of a profile that nobody asked yet."""


class LooksAtTraffic(Protocol):
    """Protocol of the gateway's `TrafficMeter.look`."""

    def __call__(self, now: float, unix: float, power_w: float | None, *, busy: bool = False) -> TrafficLook:
        """Return the figures as of `now` (monotonic; `unix` is the same moment) and the energy by this power."""
        ...


def with_gateway(
    samples: Mapping[str, EngineSample],
    looked: TrafficLook | None,
    serving: Iterable[str],
    at: float,
    late: Collection[str] = (),
) -> dict[str, EngineSample]:
    """Add the gateway's figures to each serving engine; one without figures of its own has those alone.

    `late`: engines whose counters move when a request ends. Their own rates are bursts, so the gateway's replace them.
    """
    if looked is None:
        return dict(samples)
    joined = dict(samples)
    for name in serving:
        known = samples.get(name, EngineSample(at=at))
        own = {metric: value for metric, value in known.values.items() if metric not in _RATES}
        values = own if name in late else known.values
        joined[name] = known.replace(values=values, gateway=looked.profiles.get(name, QUIET))
    return joined
