"""Engines that tell no figures, or lack one, have those that the gateway counted, marked as such."""

from __future__ import annotations

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
from sparkdash.telemetry.derive import with_gateway
from sparkdash.units import GIB

COUNTED = GatewayFigures(in_flight=3, decode_tok_s=3000.0, ttft_p50_s=0.2, requests=7, output_tokens=900)


def look(*_: Any, **__: Any) -> TrafficLook:
    return TrafficLook({"r1": LiveRequest(profile="attached", output_tokens=40)}, {"attached": COUNTED}, None)


async def test_an_engine_without_figures_has_those_of_the_gateway(watch: Watch) -> None:
    server = await watch.new_engine()
    counting(server, 40)
    watch.engines = {"coder": watch.engine(server.url), "attached": watch.engine(None)}
    async with collecting(watch, traffic=look) as running:
        sample = await running.until(lambda s: s.engines["coder"].get(Metric.DECODE) is not None)
    attached, coder = sample.engines["attached"], sample.engines["coder"]
    assert attached.figure(Metric.DECODE) == Figure(3000.0, estimated=True)
    assert attached.figure(Metric.RUNNING) == Figure(3.0, estimated=True)
    assert attached.gateway is not None
    assert attached.gateway.output_tokens == 900
    assert attached.get(Metric.DECODE) is None
    assert not coder.figure(Metric.DECODE).estimated
    assert sample.decode.value == 3000.0 + (coder.get(Metric.DECODE) or 0.0)
    assert sample.decode.estimated
    assert sample.requests["r1"].output_tokens == 40


def test_a_figure_that_the_engine_lacks_is_the_gateways() -> None:
    own = EngineSample(at=1.0, values={Metric.DECODE: 50.0, Metric.TTFT_P50: None})
    joined = with_gateway({"attached": own}, look(), ["attached"], 1.0)["attached"]
    assert joined.figure(Metric.DECODE) == Figure(50.0)
    assert joined.figure(Metric.TTFT_P50) == Figure(0.2)
    assert joined.figure(Metric.KV_USED) == Figure()


def test_the_first_token_of_requests_through_the_gateway_is_timed_and_not_read_off_buckets() -> None:
    own = EngineSample(at=1.0, values={Metric.TTFT_P50: 1.75, Metric.TTFT_P95: 2.42})
    seen, past = with_gateway({"attached": own, "past": own}, look(), ["attached", "past"], 1.0).values()
    assert seen.figure(Metric.TTFT_P50) == Figure(0.2)
    assert past.figure(Metric.TTFT_P50) == Figure(1.75, estimated=True)


def test_the_rate_of_an_engine_that_counts_at_the_end_is_the_gateways() -> None:
    own = EngineSample(at=1.0, values={Metric.DECODE: 0.0, Metric.KV_USED: 0.4})
    joined = with_gateway({"attached": own}, look(), ["attached"], 1.0, {"attached"})["attached"]
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
    assert found is not None
    assert found.engines == {"big": 98 * GIB, "small": 4 * GIB, "gone": GIB, "other": 2 * GIB}


def test_the_reserve_of_the_settings_holds_on_every_node() -> None:
    silent = NodeSample(at=1.0)
    found = derive.with_reserve({"spark2": node(), "spark3": silent}, 10 * GIB)
    assert found["spark2"].memory is not None
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


@pytest.mark.parametrize(
    ("sample", "told"),
    [
        (at_work(**{Metric.LINK_SHARE: 0.0161}), "≥ 1.6 %"),
        (at_work(**{Metric.LINK_SHARE: 0.31}), "≥ 31 %"),
        (at_work(), "-"),
        (at_work(0), ""),
        (None, ""),
    ],
)
def test_the_share_is_told_as_a_lower_bound_and_unknown_is_a_dash(sample: EngineSample | None, told: str) -> None:
    assert step_share(BIG, sample) == told
    assert step_share(engine("one"), sample) == ""
