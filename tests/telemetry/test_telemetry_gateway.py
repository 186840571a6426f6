"""Engines that tell no figures, or lack one, have those that the gateway counted, marked as such."""

from __future__ import annotations

from typing import Any

from running_collector import Watch, collecting, counting

from sparkdash.domain.metric import EngineSample, Figure, GatewayFigures, LiveRequest, Metric, Sample, TrafficLook
from sparkdash.telemetry.joins import with_gateway

COUNTED = GatewayFigures(in_flight=3, decode_tok_s=3000.0, ttft_p50_s=0.2, requests=7, output_tokens=900)


def look(*_: Any, **__: Any) -> TrafficLook:
    return TrafficLook({"r1": LiveRequest(profile="attached", output_tokens=40)}, {"attached": COUNTED}, None)


async def test_an_engine_without_figures_has_those_of_the_gateway(
    watch: Watch, time: Any, box: Any, new_engine: Any, engine: Any
) -> None:
    """And one with figures of its own keeps them; the box's rate is the sum of both."""
    server = await new_engine()
    counting(server, 40)
    watch.engines = {"coder": engine(server.url), "attached": engine(None)}
    async with collecting(watch, time, box, traffic=look) as running:
        sample = await running.until(lambda s: s.engines["coder"].get(Metric.DECODE) is not None)
    attached, coder = sample.engines["attached"], sample.engines["coder"]
    assert attached.figure(Metric.DECODE) == Figure(3000.0, by_gateway=True)
    assert attached.figure(Metric.RUNNING) == Figure(3.0, by_gateway=True)
    assert attached.gateway is not None
    assert attached.gateway.output_tokens == 900
    assert attached.get(Metric.DECODE) is None
    assert not coder.figure(Metric.DECODE).by_gateway
    assert sample.decode.value == 3000.0 + (coder.get(Metric.DECODE) or 0.0)
    assert sample.decode.by_gateway
    assert sample.requests["r1"].output_tokens == 40


def test_a_figure_that_the_engine_lacks_is_the_gateways() -> None:
    own = EngineSample(at=1.0, values={Metric.DECODE: 50.0, Metric.TTFT_P50: None})
    joined = with_gateway({"attached": own}, look(), ["attached"], 1.0)["attached"]
    assert joined.figure(Metric.DECODE) == Figure(50.0)
    assert joined.figure(Metric.TTFT_P50) == Figure(0.2, by_gateway=True)
    assert joined.figure(Metric.KV_USED) == Figure()


def test_the_rate_of_an_engine_that_counts_at_the_end_is_the_gateways() -> None:
    """Its own would be nothing while it decodes, and a burst afterwards."""
    own = EngineSample(at=1.0, values={Metric.DECODE: 0.0, Metric.KV_USED: 0.4})
    joined = with_gateway({"attached": own}, look(), ["attached"], 1.0, {"attached"})["attached"]
    assert joined.figure(Metric.DECODE) == Figure(3000.0, by_gateway=True)
    assert joined.figure(Metric.KV_USED) == Figure(0.4)


def test_nobody_counts_without_a_gateway() -> None:
    assert with_gateway({}, None, ["attached"], 1.0) == {}
    assert Sample(at=1.0).decode == Figure()
