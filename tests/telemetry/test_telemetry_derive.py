"""Windows, resets, gaps and what is known when nothing moves."""

from __future__ import annotations

import math
from typing import Any

import pytest

from sparkdash.domain.metric import Metric
from sparkdash.telemetry.derive import EngineHistory, quantile
from sparkdash.telemetry.reading import Counters, Gauges, Reading
from sparkdash.telemetry.totals import EngineTotals, LatencyHistogram


def totals_look(at: float, generated: float, *, accepted: float = 0.0, started: float = 1.0) -> Reading:
    return Reading(at, Counters(generated=generated), Gauges(), {0: accepted}, {}, started)


def test_a_warm_up_is_left_out_and_two_engines_add_up() -> None:
    """What the first reading of an engine holds is its warm-up; the next engine begins at 0 again."""
    totals = EngineTotals()
    for _ in range(2):
        history = EngineHistory(totals)
        for at, count in enumerate((16, 100, 116)):
            history.add(totals_look(at, count, accepted=count / 2))
    assert totals.counters.generated == 200
    assert totals.accepted_at == {0: 100}
    assert totals.counters.drafts is None


def test_an_engine_that_restarts_by_itself_is_counted_whole() -> None:
    totals = EngineTotals()
    history = EngineHistory(totals)
    history.add(totals_look(0, 50))
    history.add(totals_look(1, 80))
    history.add(totals_look(2, 20, started=2.0))
    history.add(totals_look(3, 25, started=2.0))
    assert totals.counters.generated == 30 + 25


def test_a_counter_that_appears_later_begins_at_zero() -> None:
    totals = EngineTotals()
    history = EngineHistory(totals)
    history.add(Reading(0, Counters(generated=5.0), Gauges(), {}, {}))
    history.add(Reading(1, Counters(generated=5.0, hits=7.0), Gauges(), {}, {}))
    history.add(Reading(2, Counters(generated=6.0), Gauges(), {}, {}))
    history.add(Reading(3, Counters(generated=6.0, hits=9.0), Gauges(), {}, {}))
    assert (totals.counters.generated, totals.counters.hits) == (1, 9)


def test_a_histogram_counts_each_duration_below_its_bounds() -> None:
    histogram = LatencyHistogram((0.1, 1.0))
    for seconds in (0.05, 0.1, 0.5, 5.0):
        histogram.observe(seconds)
    assert list(histogram.cumulative()) == [("0.1", 2), ("1.0", 3), ("+Inf", 4)]
    assert histogram.sum_s == 5.65


TTFT = {0.5: 0.0, 1.0: 0.0, math.inf: 0.0}


def look(at: float, *, running: float | None = 1.0, started: float | None = None, **counts: Any) -> Reading:
    gauges = {key: counts.pop(key) for key in list(counts) if key in Gauges._fields}
    accepted_at = counts.pop("accepted_at", {})
    ttft = counts.pop("ttft", {})
    return Reading(at, Counters(**counts), Gauges(running=running, **gauges), accepted_at, ttft, started)


def after(*looks: Reading) -> EngineHistory:
    history = EngineHistory()
    for reading in looks:
        history.add(reading)
    return history


def value(history: EngineHistory, metric: Metric) -> float | None:
    return history.derive().values[metric]


def test_derive_nothing_from_nothing() -> None:
    values, acceptance_at, *covers = EngineHistory().derive()
    assert values == dict.fromkeys(Metric)
    assert (acceptance_at, covers) == (None, [None, None])


def test_derive_needs_two_readings() -> None:
    """One reading gives gauges, no rate; not even a 0."""
    history = after(look(0, running=0, generated=100, prefilled=50, hits=1, queries=4, draft_tokens=3, accepted=1))
    assert value(history, Metric.RUNNING) == 0
    rates = (Metric.DECODE, Metric.PREFILL, Metric.PREFIX_HIT, Metric.ACCEPTANCE, Metric.TTFT_P50)
    assert [value(history, metric) for metric in rates] == [None] * 5


def test_derive_absent_is_unknown() -> None:
    values = after(*(look(at) for at in range(10))).derive().values
    assert {metric for metric, known in values.items() if known is not None} == {Metric.RUNNING}


def test_derive_decode_over_two_seconds() -> None:
    history = after(*(look(at, generated=count) for at, count in enumerate((0, 1000, 1000, 1020, 1080))))
    assert value(history, Metric.DECODE) == 40.0


def test_each_is_over_the_time_in_which_requests_decode() -> None:
    """Eight run and two of them decode at 50 tok/s; in the last second a third has its first token, as vLLM counts it."""
    history = after(
        look(0, running=8.0, generated=0, ttft_count=2, decode_s=0.0),
        look(1, running=8.0, generated=100, ttft_count=2, decode_s=2.0),
        look(2, running=8.0, generated=201, ttft_count=3, decode_s=4.0),
    )
    assert value(history, Metric.DECODE) == 100.5
    assert value(history, Metric.DECODE_EACH) == 50.0


def test_each_is_unknown_where_only_those_that_run_are_counted() -> None:
    """Three of eight wait for their first token: 50 tok/s of each would be told as 33."""
    history = after(*(look(at, running=8.0, generated=at * 267) for at in range(3)))
    assert (value(history, Metric.DECODE), value(history, Metric.DECODE_EACH)) == (267.0, None)


def test_each_of_llama_cpp_is_over_the_slots_that_decode() -> None:
    history = after(*(look(at, running=4.0, generated=at * 100, decoding=2.0) for at in range(3)))
    assert value(history, Metric.DECODE_EACH) == 50.0


def test_derive_tells_the_seconds_that_its_figures_cover() -> None:
    history = after(*(look(at, generated=at * 40) for at in (0.0, 1.0, 2.25, 3.0, 4.5)))
    derived = history.derive()
    assert (derived.rate_s, derived.window_s) == (2.25, 4.5)
    assert after(look(3, generated=1)).derive()[2:] == (None, None)


def test_derive_decode_survives_jitter() -> None:
    history = after(
        look(0, generated=0), look(1.0, generated=40), look(2.02, generated=80.8), look(2.98, generated=119.2)
    )
    assert value(history, Metric.DECODE) == pytest.approx((119.2 - 40) / 1.98)


def test_derive_idle_is_a_measured_zero() -> None:
    """With nothing running and nothing generated since the last look, decode is 0 at once."""
    history = after(look(0, generated=0), look(1, generated=40), look(2, running=0, generated=60))
    assert value(history, Metric.DECODE) == 30.0
    history.add(look(3, running=0, generated=60))
    assert value(history, Metric.DECODE) == 0.0


def test_derive_stale_gauge_is_zero_when_idle() -> None:
    assert value(after(look(0, decode=43.9)), Metric.DECODE) == 43.9
    assert value(after(look(0, decode=43.9, running=0)), Metric.DECODE) == 0.0


def test_derive_prefill_of_a_lumpy_counter() -> None:
    working = [look(at, prefilled=0, generated=0, ttft_sum=0, ttft_count=0) for at in range(31)]
    history = after(*working)
    assert value(history, Metric.PREFILL) is None
    history.add(look(31, prefilled=60_000, generated=1, ttft_sum=30, ttft_count=1))
    assert value(history, Metric.PREFILL) == 2000.0


def test_derive_prefill_beside_a_long_decode() -> None:
    history = after(*(look(at, prefilled=100, generated=40 * at, ttft_sum=1, ttft_count=1) for at in range(50)))
    assert value(history, Metric.PREFILL) == 0.0
    history.add(look(50, prefilled=8_100, generated=2000, ttft_sum=5, ttft_count=2))
    assert value(history, Metric.PREFILL) == 2000.0


def test_derive_prefill_of_queued_prompts() -> None:
    """Prompts done one after another: waiting in the queue is not prefill time, the time since the one before is."""
    looks = [look(at, prefilled=0, ttft_sum=0, ttft_count=0, generated=0) for at in range(4)]
    looks += [look(at, prefilled=8000, ttft_sum=4, ttft_count=1, generated=at) for at in range(4, 8)]
    history = after(*looks, look(8, prefilled=16_000, ttft_sum=12, ttft_count=2, generated=9))
    assert value(history, Metric.PREFILL) == 2000.0


def test_derive_prefill_of_a_live_counter() -> None:
    looks = [look(at, prefilled=1000 * at, generated=0, ttft_sum=0, ttft_count=0) for at in range(30)]
    history = after(*looks, look(30, prefilled=30_000, generated=1, ttft_sum=30, ttft_count=1))
    assert value(history, Metric.PREFILL) == 1000.0


def test_derive_prefill_from_prompts_less_hits() -> None:
    """Without a counter of computed tokens it is all prompt tokens less the hits, never below 0."""
    early = look(0, prompted=0, hits=0, queries=0)
    assert value(after(early, look(2, prompted=300, hits=100, queries=300)), Metric.PREFILL) == 100.0
    assert value(after(early, look(2, prompted=0, hits=100, queries=300, generated=1)), Metric.PREFILL) is None
    assert value(after(early, look(2, running=0, prompted=0, hits=100, queries=300)), Metric.PREFILL) == 0.0


def test_derive_prefix_hits_over_a_minute() -> None:
    """The hit rate counts the last 60 s; without a look-up in it there is none, while the lifetime stays."""
    history = after(look(0, hits=10, queries=10), look(1, hits=10, queries=30))
    assert value(history, Metric.PREFIX_HIT) == 0.0
    for at in range(2, 70):
        history.add(look(at, hits=10, queries=30))
    assert value(history, Metric.PREFIX_HIT) is None
    assert value(history, Metric.PREFIX_HIT_LIFETIME) == 0.0


def test_derive_speculation_that_drafted_nothing() -> None:
    """Speculation configured and nothing drafted in the window: unknown, not 0."""
    quiet = {"drafts": 5, "draft_tokens": 15, "accepted": 5, "accepted_at": {0: 5.0}}
    values, acceptance_at, *_ = after(look(0, **quiet), look(1, **quiet)).derive()
    assert (values[Metric.ACCEPTANCE], values[Metric.ACCEPTANCE_LENGTH], acceptance_at) == (None, None, None)


def test_derive_speculation_gauges_of_the_last_work() -> None:
    history = after(
        look(0, acceptance=0.5, acceptance_length=2.5), look(1, running=0, acceptance=0, acceptance_length=0)
    )
    assert value(history, Metric.ACCEPTANCE) == 0.5
    assert value(history, Metric.ACCEPTANCE_LENGTH) == 2.5
    for at in range(2, 70):
        history.add(look(at, running=0, acceptance=0.5, acceptance_length=2.5))
    assert value(history, Metric.ACCEPTANCE) is None


def test_derive_counts_from_the_first_reading() -> None:
    first = {"generated": 16.0, "hits": 2.0, "queries": 8.0, "drafts": 4.0, "draft_tokens": 10.0, "accepted": 5.0}
    history = after(look(0, **first, ttft={0.5: 1.0, math.inf: 1.0}), look(1, **first, ttft={0.5: 1.0, math.inf: 1.0}))
    quiet = (Metric.PREFIX_HIT, Metric.PREFIX_HIT_LIFETIME, Metric.ACCEPTANCE, Metric.TTFT_P50)
    assert [value(history, metric) for metric in quiet] == [None] * 4
    history.add(look(2, **{**first, "hits": 5.0, "queries": 18.0}))
    assert value(history, Metric.PREFIX_HIT_LIFETIME) == pytest.approx(3 / 10)
    for at in range(3, 80):
        history.add(look(at, **{**first, "hits": 5.0, "queries": 18.0}))
    assert value(history, Metric.PREFIX_HIT_LIFETIME) == pytest.approx(3 / 10)


def test_derive_starts_over_when_a_counter_falls() -> None:
    history = after(look(0, generated=1000), look(1, generated=1040), look(2, generated=5))
    assert value(history, Metric.DECODE) is None
    history.add(look(3, generated=35))
    assert value(history, Metric.DECODE) == 30.0


def test_derive_of_a_restart_counts_all_of_the_new_life() -> None:
    history = after(look(0, hits=900, queries=1000), look(1, hits=5, queries=20))
    assert value(history, Metric.PREFIX_HIT_LIFETIME) == 0.25


def test_derive_starts_over_when_the_start_time_changes() -> None:
    history = after(look(0, generated=10, started=1.0), look(1, generated=500, started=2.0))
    assert value(history, Metric.DECODE) is None


def test_derive_goes_on_after_a_gap() -> None:
    history = after(look(0, generated=0, hits=0, queries=10), look(1, generated=40, hits=5, queries=20))
    history.add(look(11, generated=440, hits=5, queries=30))
    assert value(history, Metric.DECODE) == 40.0
    assert value(history, Metric.PREFIX_HIT) == pytest.approx(5 / 20)
    history.add(look(12, generated=500, hits=15, queries=50))
    assert value(history, Metric.DECODE) == 60.0
    assert value(history, Metric.PREFIX_HIT) == pytest.approx(15 / 40)


def test_derive_of_a_gap_longer_than_the_window() -> None:
    history = after(look(0, hits=0, queries=0), look(1, hits=0, queries=100), look(301, hits=100, queries=200))
    assert value(history, Metric.PREFIX_HIT) == 1.0
    for at in range(302, 340):
        history.add(look(at, hits=100, queries=300))
    assert value(history, Metric.PREFIX_HIT) == 0.0


@pytest.mark.parametrize(
    ("gained", "q", "expected"),
    [
        ({0.5: 4.0, 1.0: 4.0, math.inf: 4.0}, 0.5, 0.25),
        ({0.5: 0.0, 1.0: 10.0, math.inf: 10.0}, 0.95, 0.975),
        ({0.5: 1.0, 1.0: 1.0, math.inf: 10.0}, 0.5, 1.0),
        (TTFT, 0.5, None),
        ({0.5: 1.0, 1.0: -1.0, math.inf: 1.0}, 0.5, None),
        ({0.5: 1.0}, 0.5, None),
        ({}, 0.5, None),
    ],
)
def test_derive_quantile(gained: dict[float, float], q: float, expected: float | None) -> None:
    """Linear within a bucket from 0; the last finite bound beyond it; unknown without samples, with a falling bucket, or no +Inf."""
    assert quantile(TTFT, gained, q) == (expected if expected is None else pytest.approx(expected))
