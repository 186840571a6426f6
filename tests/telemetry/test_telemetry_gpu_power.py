"""The stuck low-power state of a GB10, by the figures that owners saw."""

from __future__ import annotations

from typing import Any

import pytest

from sparkdash.domain.metric import Gpu
from sparkdash.telemetry.power import (
    LASTS_S,
    LowPowerDetector,
    describe_gpu,
    is_stuck,
    low_power_w,
    shows_low_power,
)

STUCK = Gpu(utilization=0.96, sm_clock_mhz=799, power_w=19.5)
HEALTHY = Gpu(utilization=0.96, sm_clock_mhz=2281, power_w=92.5)


def test_what_owners_saw() -> None:
    """96 %, 799 MHz and 19.5 W is the state; 2281 MHz and 92.5 W, after the cure, is not."""
    assert shows_low_power(STUCK)
    assert not shows_low_power(HEALTHY)
    assert describe_gpu(STUCK) == "96 % busy, 799 MHz, 19.5 W, held back by nothing"


@pytest.mark.parametrize(
    "change",
    [
        {"utilization": 0.89},
        {"sm_clock_mhz": 1400},
        {"power_w": 30},
        {"throttle": ("thermal",)},
        {"throttle": ("power cap",)},
        {"throttle": ("clock setting",)},
        {"utilization": None},
        {"sm_clock_mhz": None},
        {"power_w": None},
    ],
)
def test_one_figure_otherwise_and_it_is_not(change: dict[str, Any]) -> None:
    assert not shows_low_power(STUCK.model_copy(update=change))


def test_one_look_is_not_enough() -> None:
    """A look may fall between two kernels."""
    assert not is_stuck([STUCK])
    assert is_stuck([STUCK, STUCK])
    assert not is_stuck([STUCK, HEALTHY])


def test_it_must_last() -> None:
    """Thirty seconds in all looks; one that shows otherwise begins anew, none at all is no news."""
    watch = LowPowerDetector()
    changed = [watch.see(at, STUCK) for at in (0.0, 1.0, LASTS_S - 1)]
    assert (changed, watch.stuck) == ([False] * 3, False)
    assert not watch.see(LASTS_S - 0.5, None)
    assert watch.see(LASTS_S, STUCK)
    assert watch.stuck
    assert not watch.see(LASTS_S + 1, STUCK)
    assert watch.see(LASTS_S + 2, HEALTHY)
    assert not watch.stuck
    assert not watch.see(LASTS_S + 3, STUCK)
    assert not watch.stuck


def test_only_a_gb10_has_a_limit_below_which_it_computes_nothing() -> None:
    assert low_power_w("NVIDIA GB10") == 30.0
    assert low_power_w("NVIDIA H200") is None
    assert low_power_w(None) is None
