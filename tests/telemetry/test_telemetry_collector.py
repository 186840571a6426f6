"""The collector against engines that speak HTTP: measurements, warm-ups, slots."""

from __future__ import annotations

from typing import Any

import pytest
from running_collector import IMPATIENT_S, Watch, collecting, counting

from sparkdash.domain.engine import EngineState
from sparkdash.domain.metric import Metric
from sparkdash.domain.profile import EngineKind
from sparkdash.telemetry import source
from sparkdash.units import GIB


def warmed_up(server: Any, asked: int) -> None:
    """The engine has done its warm-up, and `asked` prompts of clients, each of 100 tokens with 60 in the cache, the first token after 1.5 s."""
    server.text = (
        f"vllm:generation_tokens_total {16 + 200 * asked}\nvllm:num_requests_running 0\n"
        f"vllm:prefix_cache_hits_total {8 + 60 * asked}\nvllm:prefix_cache_queries_total {32 + 100 * asked}\n"
        f'vllm:time_to_first_token_seconds_bucket{{le="1"}} 1\n'
        f'vllm:time_to_first_token_seconds_bucket{{le="2"}} {1 + asked}\n'
        f'vllm:time_to_first_token_seconds_bucket{{le="+Inf"}} {1 + asked}\n'
    )


OF_REQUESTS = (Metric.DECODE, Metric.TTFT_P50, Metric.TTFT_P95, Metric.PREFIX_HIT, Metric.PREFIX_HIT_LIFETIME)


async def test_collector_measures(watch: Watch, time: Any, box: Any, new_engine: Any, engine: Any) -> None:
    """A tick a second gives the engine's rate, the memory with its reserve, and the GPU."""
    server = await new_engine()
    counting(server, 40)
    watch.engines = {"coder": engine(server.url)}
    async with collecting(watch, time, box, reserve_gib=10):
        sample = await watch.until(lambda s: s.engines["coder"].get(Metric.DECODE) is not None)
    assert sample.engines["coder"].get(Metric.DECODE) == pytest.approx(40.0)
    assert sample.engines["coder"].error is None
    assert sample.engines["coder"].at == pytest.approx(sample.at)
    assert sample.memory is not None
    assert (sample.memory.total, sample.memory.reserve) == (128 * GIB, 10 * GIB)
    assert sample.gpu is not None
    assert sample.gpu.utilization == 0.5


async def test_collector_first_sample_has_no_rates(
    watch: Watch, time: Any, box: Any, new_engine: Any, engine: Any
) -> None:
    """After one look there are gauges and no rates."""
    server = await new_engine()
    counting(server, 40)
    watch.engines = {"coder": engine(server.url)}
    async with collecting(watch, time, box):
        first = (await watch.sample()).engines["coder"]
    assert first.get(Metric.RUNNING) == 1.0
    assert first.get(Metric.DECODE) is None


async def test_collector_shows_nothing_of_the_warm_up(
    watch: Watch, time: Any, box: Any, new_engine: Any, engine: Any
) -> None:
    """Before anybody asked there is neither a TTFT nor a hit; the first request counts, also when it was there before the first tick."""
    server = await new_engine()
    warmed_up(server, asked=0)
    watch.engines = {"coder": engine(server.url, state=EngineState.WARMING)}
    async with collecting(watch, time, box) as watched:
        warming = await watch.sample()
        await watched.collector.begin("coder")
        warmed_up(server, asked=1)
        watch.engines = {"coder": engine(server.url)}
        first = (await watch.until(lambda s: "coder" in s.engines)).engines["coder"]
        later = (await watch.until(lambda s: s.at > first.at + 5)).engines["coder"]
    assert warming.engines == {}
    for seen in (first, later):
        assert seen.get(Metric.PREFIX_HIT) == seen.get(Metric.PREFIX_HIT_LIFETIME) == 0.6
        assert seen.get(Metric.TTFT_P50) == 1.5


@pytest.mark.parametrize("began", [True, False])
async def test_collector_shows_nothing_before_anybody_asked(
    watch: Watch, time: Any, box: Any, new_engine: Any, engine: Any, began: bool
) -> None:
    """Of an engine that was started or adopted, what it counted before it was ours to look at is nobody's."""
    server = await new_engine()
    warmed_up(server, asked=0)
    watch.engines = {"coder": engine(server.url, state=EngineState.WARMING if began else EngineState.READY)}
    async with collecting(watch, time, box) as watched:
        if began:
            await watched.collector.begin("coder")
            watch.engines = {"coder": engine(server.url)}
        first = (await watch.until(lambda s: "coder" in s.engines)).engines["coder"]
        later = (await watch.until(lambda s: s.at > first.at + 5)).engines["coder"]
    assert [first.get(metric) or None for metric in OF_REQUESTS] == [None] * 5
    assert [later.get(metric) or None for metric in OF_REQUESTS] == [None] * 5


async def test_collector_begins_in_time_with_an_engine_that_does_not_answer(
    watch: Watch, time: Any, box: Any, new_engine: Any, engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever waits for the engine is not kept waiting: the look that is late is the one that figures begin with all the same."""
    monkeypatch.setattr(source, "BEGIN_S", 0.05)
    server = await new_engine()
    warmed_up(server, asked=0)
    server.free.clear()
    watch.engines = {"coder": engine(server.url, state=EngineState.WARMING)}
    async with collecting(watch, time, box, wait_s=IMPATIENT_S) as watched:
        await watched.collector.begin("coder")
        await watched.collector.begin("nobody")
        watch.engines = {"coder": engine(server.url)}
        server.free.set()
        first = await watch.until(lambda s: "coder" in s.engines and s.engines["coder"].values)
        warmed_up(server, asked=2)
        asked = await watch.until(lambda s: s.engines["coder"].get(Metric.PREFIX_HIT))
    assert first.engines["coder"].get(Metric.PREFIX_HIT_LIFETIME) is None
    assert asked.engines["coder"].get(Metric.PREFIX_HIT) == 0.6


async def test_collector_asks_only_those_that_answer(
    watch: Watch, time: Any, box: Any, new_engine: Any, engine: Any
) -> None:
    """Loading, failed and address-less engines are not asked, nor are kinds that tell nothing, nor one that warms up; a draining one is."""
    server = await new_engine()
    counting(server, 1)
    states = {state.value: engine(server.url, state.value, state=state) for state in EngineState}
    remote = engine(server.url, "remote", kind=EngineKind.REMOTE)
    watch.engines = {**states, "remote": remote, "nowhere": engine(None, "nowhere")}
    async with collecting(watch, time, box):
        sample = await watch.sample()
    assert set(sample.engines) == {"ready", "draining"}


@pytest.mark.parametrize(
    ("body", "status", "error"),
    [
        ("<html>502 Bad Gateway</html>", 200, "none of the figures"),
        (b"\xff\xfe\x00vllm:num_requests_running", 200, "none of the figures"),
        ('{"error": "Loading model"}', 200, "none of the figures"),
        ("python_info 1", 200, "none of the figures"),
        ("vllm:num_requests_running 1", 404, "answered 404"),
    ],
)
async def test_collector_says_what_is_wrong(
    watch: Watch, time: Any, box: Any, new_engine: Any, engine: Any, body: str, status: int, error: str
) -> None:
    """An answer that is no exposition gives no values and a reason."""
    server = await new_engine()
    server.text, server.status = body, status
    watch.engines = {"coder": engine(server.url)}
    async with collecting(watch, time, box):
        seen = (await watch.sample()).engines["coder"]
    assert error in (seen.error or "")
    assert seen.values == {}


async def test_collector_tells_engines_on_one_port_apart(
    watch: Watch, time: Any, box: Any, new_engine: Any, engine: Any
) -> None:
    """Another container behind the same address is another engine: no rate reaches from one to the other."""
    server = await new_engine()
    counting(server, 40)
    watch.engines = {"coder": engine(server.url)}
    async with collecting(watch, time, box):
        await watch.until(lambda s: s.engines["coder"].get(Metric.DECODE) is not None)
        watch.engines = {"coder": engine(server.url, fingerprint="f2")}
        fresh = await watch.until(lambda s: s.engines["coder"].get(Metric.DECODE) is None)
        again = await watch.until(lambda s: s.engines["coder"].get(Metric.DECODE) is not None)
        watch.engines = {}
        gone = await watch.until(lambda s: not s.engines)
    assert fresh.engines["coder"].get(Metric.RUNNING) == 1.0
    assert again.engines["coder"].get(Metric.DECODE) == pytest.approx(40.0)
    assert gone.memory is not None


async def test_collector_reads_slots(watch: Watch, time: Any, box: Any, new_engine: Any, engine: Any) -> None:
    """llama.cpp's decode comes from /slots while its counters stand still; without /slots from the counters."""
    server = await new_engine()
    server.text = "llamacpp:tokens_predicted_total 0\nllamacpp:requests_processing 1\n"
    slot = {"n_ctx": 4096, "is_processing": True, "id_task": 1, "n_prompt_tokens": 1024, "next_token": [{}]}

    def step() -> None:
        slot["next_token"][0]["n_decoded"] = slot["next_token"][0].get("n_decoded", 0) + 30  # type: ignore[index]

    server.step, server.slots = step, [slot]
    watch.engines = {"coder": engine(server.url, kind=EngineKind.LLAMACPP)}
    async with collecting(watch, time, box):
        live = await watch.until(lambda s: s.engines["coder"].get(Metric.DECODE))
        server.slots = None
        without = await watch.until(lambda s: s.engines["coder"].get(Metric.DECODE) == 0.0)
    assert live.engines["coder"].get(Metric.DECODE) == pytest.approx(30.0)
    assert live.engines["coder"].get(Metric.KV_USED) == 0.25
    assert live.engines["coder"].get(Metric.KV_CAPACITY) == 4096
    assert without.engines["coder"].get(Metric.KV_CAPACITY) is None


async def test_an_idle_llama_server_is_not_asked_for_its_slots(
    watch: Watch, time: Any, box: Any, new_engine: Any, engine: Any
) -> None:
    """Builds up to summer 2026 write each such question into their log. Its first answer tells the capacity; what runs later is seen."""
    server = await new_engine()
    server.text = "llamacpp:tokens_predicted_total 7\nllamacpp:requests_processing 0\n"
    server.slots = [{"n_ctx": 4096, "is_processing": False}]
    watch.engines = {"coder": engine(server.url, kind=EngineKind.LLAMACPP)}
    async with collecting(watch, time, box):
        await watch.until(lambda _: server.asked > 4)
        idle = await watch.sample()
        assert server.slots_asked == 1
        slot = {
            "n_ctx": 4096,
            "is_processing": True,
            "id_task": 1,
            "n_prompt_tokens": 1024,
            "next_token": [{"n_decoded": 30}],
        }
        server.text = "llamacpp:tokens_predicted_total 7\nllamacpp:requests_processing 1\n"
        server.slots = [slot]
        busy = await watch.until(lambda s: s.engines["coder"].get(Metric.RUNNING))
        server.text = "llamacpp:tokens_predicted_total 47\nllamacpp:requests_processing 0\n"
        over = await watch.until(lambda s: not s.engines["coder"].get(Metric.RUNNING))
    assert [idle.engines["coder"].get(name) for name in (Metric.KV_CAPACITY, Metric.KV_USED, Metric.DECODE)] == [
        4096,
        0,
        0,
    ]
    assert busy.engines["coder"].get(Metric.KV_USED) == 0.25
    assert busy.engines["coder"].get(Metric.DECODE) > 0
    assert over.engines["coder"].get(Metric.KV_USED) == 0
    assert over.engines["coder"].get(Metric.DECODE) > 0
