"""The gateway's own count, joined to the figures that engines tell.

Owns: which engines get it. Must not know how either is measured.

Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

from sparkdash.domain.live import GatewayFigures, TrafficLook
from sparkdash.domain.metric import EngineSample, Gpu, Metric
from sparkdash.telemetry.energy import GPU_ONLY, WHOLE_BOX, Power

_RATES = frozenset({Metric.DECODE, Metric.DECODE_EACH})
NOTHING_PASSED = TrafficLook({}, {}, None)
QUIET = GatewayFigures(decode_tok_s=0.0)
"""Figures of a profile that nobody asked yet."""


def total_power(gpu: Gpu | None, others: Iterable[Gpu | None] = ()) -> Power | None:
    """Return the power of the box, by its own sensor where it has one, with the GPUs of other nodes; None: unknown.

    A node that does not tell its power is not in it, and the sensor's name says of how many boxes it is.
    """
    if gpu is None or (watts := gpu.power_w if gpu.board_power_w is None else gpu.board_power_w) is None:
        return None
    sensor = GPU_ONLY if gpu.board_power_w is None else WHOLE_BOX
    more = [other.power_w for other in others if other is not None and other.power_w is not None]
    if not more:
        return Power(watts, sensor)
    return Power((gpu.power_w or watts) + sum(more), f"{GPU_ONLY}, {1 + len(more)} boxes")


class LooksAtTraffic(Protocol):
    """Protocol of the gateway's `TrafficMeter.look`."""

    def __call__(self, now: float, unix: float, power: Power | None, *, busy: bool = False) -> TrafficLook:
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
