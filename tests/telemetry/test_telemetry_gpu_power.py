"""The stuck low-power state of a GB10, by the figures that owners saw."""

from __future__ import annotations

from typing import Any

import pytest

from sparkdash.domain.metric import Gpu
from sparkdash.telemetry.power import (
    GB10_LOW_W,
    LASTS_S,
    LowPowerDetector,
    PowerBand,
    describe_gpu,
    is_stuck,
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
    """It may fall between two kernels."""
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


H200 = "NVIDIA H200"


def learnt(idle: float, decoding: float, *, samples: int = 60, until: float = 0.0) -> PowerBand:
    band = PowerBand()
    for i in range(samples):
        at = until - 5.0 * (samples - i)
        band.see(at, idle, decodes=False, holds_work=False)
        band.see(at, decoding + i % 10, decodes=True, holds_work=True)
    return band


def test_a_gb10_has_its_published_limit_from_the_beginning() -> None:
    assert PowerBand().low_w("NVIDIA GB10", 0.0) == GB10_LOW_W


def test_another_gpu_has_none_until_it_was_seen_idle_and_decoding_for_five_minutes() -> None:
    assert PowerBand().low_w(H200, 0.0) is None
    assert learnt(70.0, 300.0, samples=59).low_w(H200, 0.0) is None
    assert learnt(70.0, 300.0).low_w(H200, 0.0) == (70.0 + 301.0) / 2


def test_what_was_learnt_more_than_an_hour_ago_no_longer_counts() -> None:
    assert learnt(70.0, 300.0).low_w(H200, 3700.0) is None


def test_a_gpu_whose_power_does_not_tell_work_from_idling_has_no_limit() -> None:
    assert learnt(70.0, 90.0).low_w(H200, 0.0) is None


def test_prefill_and_stuck_work_are_not_learnt_from() -> None:
    band = learnt(70.0, 300.0)
    for i in range(1000):
        band.see(float(i), 71.0, decodes=False, holds_work=True)
    assert band.low_w(H200, 100.0) == (70.0 + 301.0) / 2


def test_samples_closer_than_five_seconds_are_one_and_unknown_power_is_none() -> None:
    band = PowerBand()
    for i in range(400):
        band.see(i / 2, 300.0, decodes=True, holds_work=True)
        band.see(i / 2, 70.0, decodes=False, holds_work=False)
        band.see(i / 2, None, decodes=False, holds_work=False)
    assert band.low_w(H200, 200.0) is None
