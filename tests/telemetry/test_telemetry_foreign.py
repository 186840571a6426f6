"""Servers that are not ours: their figures are read when they tell any, by the names of whatever engine they are."""

import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from sparkdash.domain.engine import Engine
from sparkdash.domain.metric import Metric
from sparkdash.domain.profile import EngineKind
from sparkdash.engines.registry import ATLAS, adapter
from sparkdash.telemetry.exposition import parse_exposition
from sparkdash.telemetry.reading import reading_of
from sparkdash.telemetry.source import RECOGNISE_S, MetricsSource
from sparkdash.upstream import Upstream

Looking = Callable[[Any], Any]
DATA = Path(__file__).parent.parent / "data" / "metrics"


@pytest.fixture
def looking(time: Any, engine: Callable[..., Engine]) -> Looking:
    """A Source that looks at a server as at one that is not ours; `look()` is one look, a second after the last."""

    class Looks:
        def __init__(self, source: MetricsSource) -> None:
            self._source = source

        async def look(self, seconds: float = 1.0) -> Any:
            time.now += seconds
            if task := self._source.ask():
                await task
            return self._source.sample()

    @asynccontextmanager
    async def begin(server: Any) -> AsyncIterator[Looks]:
        known = engine(server.url, kind=EngineKind.OPENAI, container=None)
        async with Upstream() as upstream:
            source = MetricsSource(known, adapter(known.kind).metrics, upstream, time.unix, time.monotonic)
            yield Looks(source)
            await source.close()

    return begin


@pytest.mark.parametrize(("text", "counts", "told"), [
    ("vllm:generation_tokens_total {}\nvllm:num_requests_running 1\n", [(100,), (140,)],
     {Metric.DECODE: 40.0, Metric.RUNNING: 1.0}),
    ('sglang:realtime_tokens_total{{mode="decode"}} {}\nsglang:num_running_reqs 2\n', [(1,), (31,)],
     {Metric.DECODE: 30.0, Metric.RUNNING: 2.0}),
    ("llamacpp:tokens_predicted_total {}\nllamacpp:requests_processing 1\n", [(5,), (25,)],
     {Metric.DECODE: 20.0, Metric.RUNNING: 1.0}),
    ("atlas_prompt_tokens_total {}\natlas_prefix_cache_hit_tokens_total {}\natlas_requests_active 1\n",
     [(0, 0), (100, 40)], {Metric.PREFIX_HIT: 0.4, Metric.DECODE: None, Metric.RUNNING: 1.0}),
])  # fmt: skip
async def test_the_figures_of_whatever_engine_it_is_are_read(
    new_engine: Any, looking: Looking, text: str, counts: list[tuple[int, ...]], told: dict[Metric, float | None]
) -> None:
    server = await new_engine()
    async with looking(server) as looks:
        for count in counts:
            server.text = text.format(*count)
            sample = await looks.look()
    assert sample.error is None
    assert {metric: sample.get(metric) for metric in told} == told


async def test_the_acceptance_of_atlas_is_read_from_its_verified_drafts(new_engine: Any, looking: Looking) -> None:
    """100 more drafts of three tokens: 40 have one accepted, 30 two, 20 three, 10 none."""
    server = await new_engine()
    server.text = before = (DATA / "constructed-atlas.txt").read_text()
    for outcome, more in (("reject", 10), ("accept-1", 40), ("accept-2", 30), ("accept-3", 20)):
        server.text = re.sub(
            rf'(outcome="{outcome}"}}) (\d+)', lambda hit, more=more: f"{hit[1]} {int(hit[2]) + more}", server.text
        )
    after, server.text = server.text, before
    async with looking(server) as looks:
        await looks.look()
        server.text = after
        sample = await looks.look()
    assert sample.get(Metric.ACCEPTANCE) == pytest.approx(160 / 300)
    assert sample.get(Metric.ACCEPTANCE_LENGTH) == pytest.approx(2.6)
    assert sample.acceptance_at == pytest.approx((0.9, 0.5, 0.2))


@pytest.mark.parametrize(
    "labels",
    ['outcome="accepted"', 'k="2",outcome="accept-2"', 'k="dflash",outcome="accept"', 'k="1",outcome="reject"'],
)
def test_verified_drafts_with_other_labels_are_unknown(labels: str) -> None:
    text = f'atlas_spec_decode_verify_total{{k="2",outcome="accept"}} 3\natlas_spec_decode_verify_total{{{labels}}} 1\n'
    reading = reading_of(0.0, parse_exposition(text), ATLAS)
    assert (reading.counters.drafts, reading.counters.accepted, reading.accepted_at) == (None, None, {})


def test_a_verified_draft_of_one_token_is_accepted_or_rejected() -> None:
    text = "\n".join(
        f'atlas_spec_decode_verify_total{{k="2",outcome="{outcome}"}} {count}'
        for outcome, count in (("accept", 3), ("reject", 1))
    )
    counters = reading_of(0.0, parse_exposition(text), ATLAS).counters
    assert (counters.drafts, counters.draft_tokens, counters.accepted) == (4, 4, 3)


@pytest.mark.parametrize(("text", "status"), [("", 404), ("te_request_count 7\n", 200), ("", 200), ("<html>", 200)])
async def test_a_server_without_figures_is_no_fault_and_seldom_asked(
    new_engine: Any, looking: Looking, text: str, status: int
) -> None:
    server = await new_engine()
    server.text, server.status = text, status
    async with looking(server) as looks:
        assert [await looks.look() for _ in range(10)] == [None] * 10
        assert server.asked == 1
        assert [await looks.look(60) for _ in range(24 * 60)] == [None] * 24 * 60
        assert server.asked < 35, "once an hour, after a few looks in the first"
        server.text, server.status = "vllm:num_requests_running 3\n", 200
        sample = await looks.look(RECOGNISE_S[1])
    assert sample.get(Metric.RUNNING) == 3.0


async def test_another_engine_at_the_same_address_is_recognised_anew(new_engine: Any, looking: Looking) -> None:
    server = await new_engine()
    server.text = "vllm:generation_tokens_total 100\nvllm:num_requests_running 1\n"
    async with looking(server) as looks:
        await looks.look(RECOGNISE_S[0])
        server.text = "llamacpp:tokens_predicted_total 900\nllamacpp:requests_processing 2\n"
        gone = await looks.look(RECOGNISE_S[0])
        found = await looks.look()
    assert "none of the figures" in gone.error
    assert (found.error, found.get(Metric.RUNNING), found.get(Metric.DECODE)) == (None, 2.0, None)


async def test_a_hiccup_is_not_taken_for_another_engine(new_engine: Any, looking: Looking) -> None:
    server = await new_engine()
    server.text = "vllm:generation_tokens_total 100\nvllm:num_requests_running 1\n"
    async with looking(server) as looks:
        await looks.look()
        server.status = 503
        assert "answered 503" in (await looks.look()).error
        server.status, server.text = 200, "vllm:generation_tokens_total 180\nvllm:num_requests_running 1\n"
        assert (await looks.look()).get(Metric.DECODE) == 40.0


@pytest.mark.parametrize(("told", "reads"), [("trtllm_num_requests_running 4\n", 0), (None, 1)])
async def test_the_iterations_of_a_tensorrt_llm_are_not_taken_from_others(
    new_engine: Any, looking: Looking, told: str | None, reads: int
) -> None:
    server = await new_engine()
    server.text = "[]"

    async def exposition(_request: web.Request) -> web.Response:
        return web.Response(text=told or "", status=200 if told else 404)

    server.second = exposition
    async with looking(server) as looks:
        sample = None
        for _ in range(4):
            sample = await looks.look(RECOGNISE_S[0])
    assert server.asked == reads
    assert (sample and sample.get(Metric.RUNNING)) == (4.0 if told else None)
