"""The gateway's own count, joined to the figures that engines tell.

Owns: which engines get it. Must not know how either is measured.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from sparkdash.domain.live import GatewayFigures, TrafficLook
from sparkdash.domain.metric import EngineSample

NOTHING_PASSED = TrafficLook({}, {}, None)
QUIET = GatewayFigures(decode_tok_s=0.0)
"""Figures of a profile that nobody asked yet."""


class LooksAtTraffic(Protocol):
    """Protocol of the gateway's `TrafficMeter.look`."""

    def __call__(self, now: float, unix: float, power_w: float | None, *, busy: bool = False) -> TrafficLook:
        """Return the figures as of `now` (monotonic; `unix` is the same moment) and the energy by this power."""
        ...


def with_gateway(
    samples: Mapping[str, EngineSample], looked: TrafficLook | None, serving: Iterable[str], at: float
) -> dict[str, EngineSample]:
    """Add the gateway's figures to each serving engine; one without figures of its own has those alone."""
    if looked is None:
        return dict(samples)
    told = {name: looked.profiles.get(name, QUIET) for name in serving}
    return dict(samples) | {
        name: samples.get(name, EngineSample(at=at)).replace(gateway=figures) for name, figures in told.items()
    }
