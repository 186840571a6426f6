"""Totals over the lives of engines: a counter that begins anew takes nothing away."""

from __future__ import annotations

from sparkdash.telemetry.derive import EngineHistory
from sparkdash.telemetry.reading import Counters, Gauges, Reading
from sparkdash.telemetry.totals import EngineTotals, LatencyHistogram


def look(at: float, generated: float, *, accepted: float = 0.0, started: float = 1.0) -> Reading:
    return Reading(at, Counters(generated=generated), Gauges(), {0: accepted}, {}, started)


def test_a_warm_up_is_left_out_and_two_engines_add_up() -> None:
    """What the first reading of an engine holds is its warm-up; the next engine begins at 0 again."""
    totals = EngineTotals()
    for _ in range(2):
        history = EngineHistory(totals)
        for at, count in enumerate((16, 100, 116)):
            history.add(look(at, count, accepted=count / 2))
    assert totals.counters.generated == 200
    assert totals.accepted_at == {0: 100}
    assert totals.counters.drafts is None


def test_an_engine_that_restarts_by_itself_is_counted_whole() -> None:
    """Nobody else asked it between the two readings, so its counters are all new work."""
    totals = EngineTotals()
    history = EngineHistory(totals)
    history.add(look(0, 50))
    history.add(look(1, 80))
    history.add(look(2, 20, started=2.0))
    history.add(look(3, 25, started=2.0))
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
