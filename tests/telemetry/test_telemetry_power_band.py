"""The power below which a GPU computes nothing."""

from __future__ import annotations

from sparkdash.telemetry.gpu_power import GB10_LOW_W, PowerBand

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
