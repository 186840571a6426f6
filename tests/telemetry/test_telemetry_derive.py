"""Figures derived from readings: windows, resets, gaps, what the gateway counted, nodes and links."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
from running_collector import Watch, collecting, counting

from sparkdash.domain.engine import Engine, EngineState
from sparkdash.domain.metric import (
    EngineSample,
    Figure,
    GatewayFigures,
    LinkSample,
    LiveRequest,
    Memory,
    Metric,
    NodeSample,
    Sample,
    TrafficLook,
)
from sparkdash.domain.node import LOCAL
from sparkdash.domain.phrases import step_share
from sparkdash.domain.profile import EngineKind
from sparkdash.telemetry import derive
from sparkdash.telemetry.derive import EngineHistory, quantile, with_gateway
from sparkdash.telemetry.reading import Counters, Gauges, Reading
from sparkdash.telemetry.totals import EngineTotals, LatencyHistogram
from sparkdash.units import GIB


def totals_look(at: float, generated: float, *, accepted: float = 0.0, started: float = 1.0) -> Reading:
    return Reading(at, Counters(generated=generated), Gauges(), {0: accepted}, {}, started)


def test_a_warm_up_is_left_out_and_two_engines_add_up() -> None:
    """An engine's first reading holds its warm-up; the next engine begins at 0 again."""
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
    history = after(look(0, running=0, generated=100, prefilled=50, hits=1, queries=4, draft_tokens=3, accepted=1))
    assert value(history, Metric.RUNNING) == 0
    rates = (Metric.DECODE, Metric.PREFILL, Metric.PREFIX_HIT, Metric.ACCEPTANCE, Metric.TTFT_P50)
    assert [value(history, metric) for metric in rates] == [None] * 5


def test_derive_absent_is_unknown() -> None:
    values = after(*(look(at) for at in range(10))).derive().values
    assert {metric for metric, known in values.items() if known is not None} == {Metric.RUNNING}


def counted(at: float, prefilled: float, generated: float, sums: float, firsts: float) -> Reading:
    return look(at, prefilled=prefilled, generated=generated, ttft_sum=sums, ttft_count=firsts)


IDLE = (look(0, generated=0), look(1, generated=40), look(2, running=0, generated=60))
LUMPY = tuple(counted(at, 0, 0, 0, 0) for at in range(31))
DECODING = tuple(counted(at, 100, 40 * at, 1, 1) for at in range(50))
EARLY = look(0, prompted=0, hits=0, queries=0)
QUEUED = (*LUMPY[:4], *(counted(at, 8000, at, 4, 1) for at in range(4, 8)), counted(8, 16_000, 9, 12, 2))
AS_VLLM = tuple(
    look(at, running=8.0, generated=generated, ttft_count=firsts, decode_s=2.0 * at)
    for at, (generated, firsts) in enumerate([(0, 2), (100, 2), (201, 3)])
)
"""Eight run and two of them decode at 50 tok/s; in the last second a third has its first token."""
RUNNING = tuple(look(at, running=8.0, generated=at * 267) for at in range(3))
"""Three of eight wait for their first token: 50 tok/s of each would be told as 33."""
SLOTS = tuple(look(at, running=4.0, generated=at * 100, decoding=2.0) for at in range(3))
DERIVED: dict[str, tuple[Metric, float | None, Sequence[Reading]]] = {
    "over two seconds": (
        Metric.DECODE, 40.0, [look(at, generated=count) for at, count in enumerate((0, 1000, 1000, 1020, 1080))]
    ),
    "over a window that jitters": (
        Metric.DECODE, 79.2 / 1.98, [look(at, generated=40 * at) for at in (0, 1.0, 2.02, 2.98)]
    ),
    "the tail of a request": (Metric.DECODE, 30.0, IDLE),
    "nothing since the last look": (Metric.DECODE, 0.0, [*IDLE, look(3, running=0, generated=60)]),
    "a gauge": (Metric.DECODE, 43.9, [look(0, decode=43.9)]),
    "a stale gauge": (Metric.DECODE, 0.0, [look(0, decode=43.9, running=0)]),
    "of each, over the time in which requests decode": (Metric.DECODE_EACH, 50.0, AS_VLLM),
    "of each, where only those that run are counted": (Metric.DECODE_EACH, None, RUNNING),
    "of each, over the slots that decode": (Metric.DECODE_EACH, 50.0, SLOTS),
    "a start time that changes": (
        Metric.DECODE, None, [look(0, generated=10, started=1.0), look(1, generated=500, started=2.0)]
    ),
    "a prompt while it is computed": (Metric.PREFILL, None, LUMPY),
    "a prompt that counts at its end": (Metric.PREFILL, 2000.0, [*LUMPY, counted(31, 60_000, 1, 30, 1)]),
    "no prompt beside a decode": (Metric.PREFILL, 0.0, DECODING),
    "a prompt beside a decode": (Metric.PREFILL, 2000.0, [*DECODING, counted(50, 8_100, 2000, 5, 2)]),
    "prompts that waited in the queue": (Metric.PREFILL, 2000.0, QUEUED),
    "a live counter": (
        Metric.PREFILL, 1000.0,
        [*(counted(at, 1000 * at, 0, 0, 0) for at in range(30)), counted(30, 30_000, 1, 30, 1)],
    ),
    "prompts less hits": (Metric.PREFILL, 100.0, [EARLY, look(2, prompted=300, hits=100, queries=300)]),
    "more hits than prompts": (Metric.PREFILL, None, [EARLY, look(2, prompted=0, hits=100, queries=300, generated=1)]),
    "idle with more hits": (Metric.PREFILL, 0.0, [EARLY, look(2, running=0, prompted=0, hits=100, queries=300)]),
    "a restart, all of the new life": (
        Metric.PREFIX_HIT_LIFETIME, 0.25, [look(0, hits=900, queries=1000), look(1, hits=5, queries=20)]
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", DERIVED)
def test_derive_from_readings(case: str) -> None:
    metric, expected, looks = DERIVED[case]
    assert value(after(*looks), metric) == (expected if expected is None else pytest.approx(expected))


def test_derive_tells_the_seconds_that_its_figures_cover() -> None:
    history = after(*(look(at, generated=at * 40) for at in (0.0, 1.0, 2.25, 3.0, 4.5)))
    derived = history.derive()
    assert (derived.rate_s, derived.window_s) == (2.25, 4.5)
    assert after(look(3, generated=1)).derive()[2:] == (None, None)


def test_derive_prefix_hits_over_a_minute() -> None:
    history = after(look(0, hits=10, queries=10), look(1, hits=10, queries=30))
    assert value(history, Metric.PREFIX_HIT) == 0.0
    for at in range(2, 70):
        history.add(look(at, hits=10, queries=30))
    assert value(history, Metric.PREFIX_HIT) is None
    assert value(history, Metric.PREFIX_HIT_LIFETIME) == 0.0


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


@pytest.mark.parametrize(("gained", "q", "expected"), [
    ({0.5: 4.0, 1.0: 4.0, math.inf: 4.0}, 0.5, 0.25), ({0.5: 0.0, 1.0: 10.0, math.inf: 10.0}, 0.95, 0.975),
    ({0.5: 1.0, 1.0: 1.0, math.inf: 10.0}, 0.5, 1.0), (TTFT, 0.5, None),
    ({0.5: 1.0, 1.0: -1.0, math.inf: 1.0}, 0.5, None), ({0.5: 1.0}, 0.5, None), ({}, 0.5, None),
])  # fmt: skip
def test_derive_quantile(gained: dict[float, float], q: float, expected: float | None) -> None:
    """Linear within a bucket from 0; the last finite bound beyond it; unknown without samples, with a falling bucket, or no +Inf."""
    assert quantile(TTFT, gained, q) == (expected if expected is None else pytest.approx(expected))


COUNTED = GatewayFigures(in_flight=3, decode_tok_s=3000.0, ttft_p50_s=0.2, requests=7, output_tokens=900)


def traffic(*_: Any, **__: Any) -> TrafficLook:
    return TrafficLook({"r1": LiveRequest(profile="attached", output_tokens=40)}, {"attached": COUNTED}, None)


async def test_an_engine_without_figures_has_those_of_the_gateway(watch: Watch) -> None:
    server = await watch.new_engine()
    counting(server, 40)
    watch.engines = {"coder": watch.engine(server.url), "attached": watch.engine(None)}
    async with collecting(watch, traffic=traffic) as running:
        sample = await running.until(lambda s: s.engines["coder"].get(Metric.DECODE) is not None)
    attached, coder = sample.engines["attached"], sample.engines["coder"]
    assert attached.figure(Metric.DECODE) == Figure(3000.0, estimated=True)
    assert attached.figure(Metric.RUNNING) == Figure(3.0, estimated=True)
    assert attached.gateway.output_tokens == 900
    assert attached.get(Metric.DECODE) is None
    assert not coder.figure(Metric.DECODE).estimated
    assert sample.decode.value == 3000.0 + (coder.get(Metric.DECODE) or 0.0)
    assert sample.decode.estimated
    assert sample.requests["r1"].output_tokens == 40


def test_a_figure_that_the_engine_lacks_is_the_gateways() -> None:
    own = EngineSample(at=1.0, values={Metric.DECODE: 50.0, Metric.TTFT_P50: None})
    joined = with_gateway({"attached": own}, traffic(), ["attached"], 1.0)["attached"]
    assert joined.figure(Metric.DECODE) == Figure(50.0)
    assert joined.figure(Metric.TTFT_P50) == Figure(0.2)
    assert joined.figure(Metric.KV_USED) == Figure()


def test_the_first_token_of_requests_through_the_gateway_is_timed_and_not_read_off_buckets() -> None:
    own = EngineSample(at=1.0, values={Metric.TTFT_P50: 1.75, Metric.TTFT_P95: 2.42})
    seen, past = with_gateway({"attached": own, "past": own}, traffic(), ["attached", "past"], 1.0).values()
    assert seen.figure(Metric.TTFT_P50) == Figure(0.2)
    assert past.figure(Metric.TTFT_P50) == Figure(1.75, estimated=True)


def test_the_rate_of_an_engine_that_counts_at_the_end_is_the_gateways() -> None:
    own = EngineSample(at=1.0, values={Metric.DECODE: 0.0, Metric.KV_USED: 0.4})
    joined = with_gateway({"attached": own}, traffic(), ["attached"], 1.0, {"attached"})["attached"]
    assert joined.figure(Metric.DECODE) == Figure(3000.0, estimated=True)
    assert joined.figure(Metric.KV_USED) == Figure(0.4)


def test_nobody_counts_without_a_gateway() -> None:
    assert with_gateway({}, None, ["attached"], 1.0) == {}
    assert Sample(at=1.0).decode == Figure()


BOTH = (LOCAL, "spark2")


def engine(name: str, nodes: tuple[str, ...] = (LOCAL,)) -> Engine:
    container = f"sparkdash-{name}"
    return Engine(
        profile=name, kind=EngineKind.VLLM, fingerprint="f", state=EngineState.READY, since=0.0, container=container,
        nodes=nodes,
    )  # fmt: skip


def at_work(running: float | None = 1.0, **more: Any) -> EngineSample:
    """Figures of an engine that runs so many requests."""
    return EngineSample(at=1.0, values={} if running is None else {Metric.RUNNING: running, **more})


def node(received: float | None = None, rate: float | None = 200.0, **held: int) -> NodeSample:
    memory = Memory(total=128 * GIB, available=64 * GIB, free=GIB, engines=dict(held))
    link = LinkSample(name="rocep1s0f1", rdma=True, received_bytes_s=received, sent_bytes_s=0.0, rate_gbit_s=rate)
    return NodeSample(at=1.0, memory=memory, links=(link,))


def test_memory_of_a_head_and_of_a_worker_is_the_profiles() -> None:
    engines = {"big": engine("big", BOTH), "small": engine("small", ("spark2",))}
    held = {"sparkdash-big-worker1": 98 * GIB, "sparkdash-small": 4 * GIB, "sparkdash-gone": GIB, "other": 2 * GIB}
    found = derive.by_profile({"spark2": node(**held)}, engines)["spark2"].memory
    assert found.engines == {"big": 98 * GIB, "small": 4 * GIB, "gone": GIB, "other": 2 * GIB}


def test_the_reserve_of_the_settings_holds_on_every_node() -> None:
    silent = NodeSample(at=1.0)
    found = derive.with_reserve({"spark2": node(), "spark3": silent}, 10 * GIB)
    assert found["spark2"].memory.reserve == 10 * GIB
    assert found["spark3"] == silent


def share(worked: set[str], nodes: dict[str, NodeSample], **engines: Engine) -> float | None:
    samples = dict.fromkeys(engines, at_work())
    return derive.with_link_share(samples, worked, nodes, engines)["big"].get(Metric.LINK_SHARE)


BIG = engine("big", BOTH)


def test_the_link_takes_the_share_of_its_busier_direction_in_its_rate() -> None:
    """2.5 GB/s are 20 of 200 Gb/s, on whichever end it is seen."""
    assert share({"big"}, {"spark2": node(2.5e9), LOCAL: node(1e9)}, big=BIG) == pytest.approx(0.1)


@pytest.mark.parametrize("link", [{"received": 1e9, "rate": None}, {"received": 1e11}])
def test_a_share_is_unknown_without_a_rate_and_never_above_the_whole(link: dict[str, Any]) -> None:
    found = share({"big"}, {"spark2": node(**link)}, big=BIG)
    assert found == (None if link.get("rate", 200.0) is None else 1.0)


def test_nobody_can_tell_whose_traffic_it_is_when_two_engines_work() -> None:
    assert share({"big", "too"}, {"spark2": node(1e9)}, big=BIG, too=engine("too", BOTH)) is None


def test_only_engines_on_several_nodes_that_run_requests_work_on_the_link() -> None:
    engines = {"big": BIG, "idle": engine("idle", BOTH), "one": engine("one"), "new": engine("new", BOTH)}
    samples = {"big": at_work(2), "idle": at_work(0), "one": at_work(3), "new": at_work(None)}
    assert derive.working(engines, samples) == {"big"}


@pytest.mark.parametrize(("sample", "told"), [
    (at_work(**{Metric.LINK_SHARE: 0.0161}), "≥ 1.6 %"), (at_work(**{Metric.LINK_SHARE: 0.31}), "≥ 31 %"),
    (at_work(), "-"), (at_work(0), ""), (None, ""),
])  # fmt: skip
def test_the_share_is_told_as_a_lower_bound_and_unknown_is_a_dash(sample: EngineSample | None, told: str) -> None:
    assert step_share(BIG, sample) == told
    assert step_share(engine("one"), sample) == ""
