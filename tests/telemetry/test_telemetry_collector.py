"""The collector against engines that speak HTTP: measurements, warm-ups, slots."""

import itertools
from typing import Any

import pytest
from logs import capture_logs
from running_collector import IMPATIENT_S, Watch, collecting, counting

from sparkdash.domain import metric
from sparkdash.domain.container import ForeignContainer
from sparkdash.domain.engine import EngineState
from sparkdash.domain.metric import Gpu, Metric
from sparkdash.domain.profile import EngineKind
from sparkdash.errors import HostError
from sparkdash.telemetry import source
from sparkdash.units import GIB


async def test_collector_memory_by_engine(watch: Watch) -> None:
    watch.pids = {"coder": {7, 8}}
    loading = EngineState.LOADING
    watch.engines = {name: watch.engine(None, name, state=loading) for name in ("coder", "other")}
    watch.engines["broken"] = watch.engine(None, "broken", state=EngineState.FAILED)
    async with collecting(watch):
        sample = await watch.until(lambda s: s.memory.engines.get("coder"))
    assert sample.memory.engines == {"coder": 1 << 30, "other": None}


@pytest.mark.parametrize(
    ("state", "listeners", "seconds", "least"), [(EngineState.LOADING, 1, 20, 4), (EngineState.READY, 0, 100, 3)]
)
async def test_processes_are_seldom_asked_for_and_of_started_engines_hardly_while_nobody_looks(
    watch: Watch, state: EngineState, listeners: int, seconds: int, least: int
) -> None:
    watch.pids, watch.listeners = {"coder": {7}}, listeners
    watch.engines = {"coder": watch.engine(None, state=state)}
    async with collecting(watch):
        first = await watch.sample()
        await watch.until(lambda s: s.at >= first.at + seconds)
        asked = len(watch.pids_asked)
    assert least <= asked <= 5


async def test_other_containers_are_weighed_with_every_tick_and_asked_for_seldom(watch: Watch) -> None:
    """Every 30 s while somebody watches, and when our engines change; a container whose processes nobody tells has no figure."""
    comfy, mute = ForeignContainer(name="comfy", gpu=True), ForeignContainer(name="mute", ports=(18000,))
    watch.foreign = {comfy: {7}, mute: set()}
    async with collecting(watch):
        sample = await watch.until(lambda s: s.memory and s.memory.strangers)
        await watch.until(lambda s: s.at >= sample.at + 20)
        asked = watch.foreign_asked
        watch.engines = {"coder": watch.engine(None, state=EngineState.LOADING)}
        changed = await watch.sample()
        await watch.until(lambda s: s.at >= changed.at + 3)
        again = watch.foreign_asked
        watch.listeners = 0
        await watch.until(lambda s: s.at >= changed.at + 100)
    assert (asked, again, watch.foreign_asked) == (1, 2, 2)
    assert [each.bytes for each in sample.memory.strangers] == [1 << 30, None]


async def test_collector_without_a_runtime(watch: Watch) -> None:
    watch.engines = {"coder": watch.engine(None, state=EngineState.LOADING)}
    watch.pids_broken = HostError("podman did not answer.")
    async with collecting(watch):
        first = await watch.sample()
        sample = await watch.until(lambda s: s.at >= first.at + 3)
    assert sample.memory.engines == {"coder": None}
    assert watch.notices == []


async def test_collector_with_a_hanging_driver(watch: Watch) -> None:
    watch.box.gpu_free.clear()
    async with collecting(watch, wait_s=IMPATIENT_S):
        samples = [await watch.sample() for _ in range(3)]
        watch.box.gpu_free.set()
        back = await watch.until(lambda s: s.gpu is not None)
    assert [sample.gpu for sample in samples] == [None, None, None]
    assert all(sample.memory is not None for sample in samples)
    assert back.gpu.name == "GB10"


async def test_a_gpu_stuck_in_its_low_power_state_is_told_and_marks_the_samples(watch: Watch) -> None:
    watch.box.gpu_now = Gpu(utilization=0.96, sm_clock_mhz=799, power_w=19.5)
    async with collecting(watch):
        first = await watch.sample()
        marked = await watch.until(lambda s: s.low_power)
        assert not first.low_power
        assert marked.at - first.at >= 30
        await watch.sample()
        watch.box.gpu_now = Gpu(utilization=0.96, sm_clock_mhz=2281, power_w=92.5)
        await watch.until(lambda s: not s.low_power)
    assert [notice.code for notice in watch.notices] == ["low_power", "low_power_over"]
    assert "96 % busy, 799 MHz, 19.5 W, held back by nothing). Unplug" in watch.notices[0].text


async def test_collector_does_not_wait_for_a_slow_engine(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "ANSWER_S", 600)
    slow, quick = await watch.new_engine(), await watch.new_engine()
    counting(slow, 40)
    counting(quick, 20)
    watch.engines = {"slow": watch.engine(slow.url, "slow"), "quick": watch.engine(quick.url, "quick")}
    async with collecting(watch, wait_s=IMPATIENT_S):
        last = await watch.until(lambda s: s.engines["slow"].get(Metric.DECODE) is not None)
        slow.free.clear()
        stuck = await watch.until(lambda s: s.engines["slow"].error and s.at - s.engines["slow"].at >= 2)
        asked = slow.asked
        since = stuck.engines["quick"].at
        await watch.until(lambda s: s.engines["quick"].at > since and s.engines["quick"].error is None)
        assert slow.asked == asked
        slow.free.set()
        again = await watch.until(lambda s: s.engines["slow"].error is None)
    assert stuck.engines["slow"].get(Metric.DECODE) == last.engines["slow"].get(Metric.DECODE)
    assert "no answer for" in (stuck.engines["slow"].error or "")
    assert again.engines["slow"].at > stuck.engines["slow"].at
    assert slow.at_once == 1


async def test_collector_survives_a_dying_engine(watch: Watch) -> None:
    server = await watch.coder()
    counting(server, 40)
    async with collecting(watch):
        alive = await watch.until(lambda s: s.engines["coder"].get(Metric.DECODE) is not None)
        await server.server.close()
        dead = await watch.until(lambda s: s.engines["coder"].error)
        assert "Nothing answers" in (dead.engines["coder"].error or "")
        much_later = await watch.until(lambda s: s.at > dead.at + 20)
    assert much_later.engines["coder"].values == alive.engines["coder"].values | dead.engines["coder"].values
    assert much_later.engines["coder"].at == dead.engines["coder"].at


async def test_collector_backs_off(watch: Watch) -> None:
    server = await watch.coder()
    server.status = 503
    async with collecting(watch):
        first = await watch.sample()
        await watch.until(lambda s: s.at >= first.at + 22)
        failed = server.asked
        server.status, server.text = 200, "vllm:num_requests_running 1"
        healed = await watch.until(lambda s: s.engines["coder"].error is None)
        before = server.asked
        await watch.until(lambda s: s.at >= healed.at + 5)
    assert failed == 3 + 4
    assert server.asked - before >= 5


@pytest.mark.parametrize(
    ("changes", "gauges", "asked"),
    [
        ({}, "vllm:num_requests_running 0", 5),
        ({}, "vllm:num_requests_running 0\nvllm:num_requests_waiting 2", 10),
        ({}, "vllm:num_requests_running 1", 10),
        ({}, "vllm:generation_tokens_total 7", 10),
        ({"in_flight": 1}, "vllm:num_requests_running 0", 10),
    ],
    ids=["rests", "waits", "runs", "does not tell", "in flight"],
)
async def test_an_engine_that_rests_is_asked_at_every_second_tick(
    watch: Watch, changes: dict[str, Any], gauges: str, asked: int
) -> None:
    server = await watch.new_engine()
    server.text = gauges
    watch.engines = {"coder": watch.engine(server.url, **changes)}
    async with collecting(watch):
        first = await watch.until(lambda s: s.at >= watch.time.unix() - watch.time.now + 1005)
        before = server.asked
        ages = [sample.at - sample.engines["coder"].at for sample in [await watch.sample() for _ in range(10)]]
    assert server.asked - before == asked
    assert max(ages) <= metric.STALE_S - 1
    assert first.engines["coder"].error is None


async def test_an_engine_that_begins_or_fails_is_asked_at_every_tick_again(watch: Watch) -> None:
    server = await watch.coder()
    server.text = "vllm:num_requests_running 0\nvllm:generation_tokens_total 7"
    async with collecting(watch):
        rested = await watch.until(lambda s: s.at - s.engines["coder"].at == 1)
        server.text = "vllm:num_requests_running 0\nvllm:generation_tokens_total 8"
        moved = await watch.until(lambda s: s.engines["coder"].at > rested.at)
        told = [(await watch.sample()).engines["coder"].at - moved.at for _ in range(4)]
        server.status = 503
        failed = await watch.until(lambda s: s.engines["coder"].error)
        before = server.asked
        again = await watch.until(lambda s: s.at >= failed.at + 2)
    assert told == [1, 1, 3, 3]
    assert server.asked - before == again.at - failed.at


async def test_collector_goes_on_after_a_crash(watch: Watch) -> None:
    server = await watch.coder()
    counting(server, 40)
    watch.box.broken = ZeroDivisionError("no memory at all")
    with capture_logs() as logs:
        async with collecting(watch):
            sample = await watch.until(lambda s: s.engines["coder"].get(Metric.DECODE) is not None)
            watch.box.broken = None
            healed = await watch.until(lambda s: s.memory is not None)
    assert sample.memory is None
    assert healed.memory is not None
    assert [notice.code for notice in watch.notices] == ["telemetry_failed"]
    assert "no memory at all" in watch.notices[0].text
    assert len(logs) >= 2


async def test_collector_goes_on_when_a_whole_tick_crashes(watch: Watch) -> None:
    watch.crashes = 3
    with capture_logs() as logs:
        async with collecting(watch):
            sample = await watch.sample()
    assert sample.at == watch.time.unix() - watch.time.now + 1003
    assert [notice.text for notice in watch.notices] == [
        "A measurement failed and is tried again: RuntimeError: the books are closed"
    ]
    assert len(logs) == 3


@pytest.mark.parametrize(("running", "between"), [(True, 5.0), (False, 15.0)])
async def test_collector_is_slower_when_nobody_looks(watch: Watch, running: bool, between: float) -> None:
    watch.listeners = 0
    watch.engines = {"coder": watch.engine(None, state=EngineState.READY if running else EngineState.FAILED)}
    async with collecting(watch):
        first, second = await watch.sample(), await watch.sample()
        watch.listeners = 1
        third = await watch.sample()
    assert second.at - first.at == pytest.approx(between)
    assert third.at - second.at <= 1.0
    assert max(watch.time.slept) <= 1.0


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


async def test_collector_measures(watch: Watch) -> None:
    server = await watch.coder()
    counting(server, 40)
    async with collecting(watch, reserve_gib=10):
        sample = await watch.until(lambda s: s.engines["coder"].get(Metric.DECODE) is not None)
    assert sample.engines["coder"].get(Metric.DECODE) == pytest.approx(40.0)
    assert sample.engines["coder"].error is None
    assert sample.engines["coder"].at == pytest.approx(sample.at)
    assert (sample.memory.total, sample.memory.reserve) == (128 * GIB, 10 * GIB)
    assert sample.gpu.utilization == 0.5


async def test_collector_shows_nothing_of_the_warm_up(watch: Watch) -> None:
    server = await watch.new_engine()
    warmed_up(server, asked=0)
    watch.engines = {"coder": watch.engine(server.url, state=EngineState.WARMING)}
    async with collecting(watch) as watched:
        warming = await watch.sample()
        await watched.collector.begin("coder")
        warmed_up(server, asked=1)
        watch.engines = {"coder": watch.engine(server.url)}
        first = (await watch.until(lambda s: "coder" in s.engines)).engines["coder"]
        later = (await watch.until(lambda s: s.at > first.at + 5)).engines["coder"]
    assert warming.engines == {}
    for seen in (first, later):
        assert seen.get(Metric.PREFIX_HIT) == seen.get(Metric.PREFIX_HIT_LIFETIME) == 0.6
        assert seen.get(Metric.TTFT_P50) == 1.5


@pytest.mark.parametrize("began", [True, False])
async def test_collector_shows_nothing_before_anybody_asked(watch: Watch, began: bool) -> None:
    server = await watch.new_engine()
    warmed_up(server, asked=0)
    watch.engines = {"coder": watch.engine(server.url, state=EngineState.WARMING if began else EngineState.READY)}
    async with collecting(watch) as watched:
        if began:
            await watched.collector.begin("coder")
            watch.engines = {"coder": watch.engine(server.url)}
        first = (await watch.until(lambda s: "coder" in s.engines)).engines["coder"]
        later = (await watch.until(lambda s: s.at > first.at + 5)).engines["coder"]
    assert [first.get(metric) or None for metric in OF_REQUESTS] == [None] * 5
    assert [later.get(metric) or None for metric in OF_REQUESTS] == [None] * 5


async def test_collector_begins_in_time_with_an_engine_that_does_not_answer(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "BEGIN_S", 0.05)
    server = await watch.new_engine()
    warmed_up(server, asked=0)
    server.free.clear()
    watch.engines = {"coder": watch.engine(server.url, state=EngineState.WARMING)}
    async with collecting(watch, wait_s=IMPATIENT_S) as watched:
        await watched.collector.begin("coder")
        await watched.collector.begin("nobody")
        watch.engines = {"coder": watch.engine(server.url)}
        server.free.set()
        first = await watch.until(lambda s: "coder" in s.engines and s.engines["coder"].values)
        warmed_up(server, asked=2)
        asked = await watch.until(lambda s: s.engines["coder"].get(Metric.PREFIX_HIT))
    assert first.engines["coder"].get(Metric.PREFIX_HIT_LIFETIME) is None
    assert asked.engines["coder"].get(Metric.PREFIX_HIT) == 0.6


async def test_collector_asks_only_those_that_answer(watch: Watch) -> None:
    server = await watch.new_engine()
    counting(server, 1)
    states = {state.value: watch.engine(server.url, state.value, state=state) for state in EngineState}
    remote = watch.engine(server.url, "remote", kind=EngineKind.REMOTE)
    watch.engines = {**states, "remote": remote, "nowhere": watch.engine(None, "nowhere")}
    async with collecting(watch):
        sample = await watch.sample()
    assert set(sample.engines) == {"ready", "draining"}


@pytest.mark.parametrize(("body", "status", "error"), [
    ("<html>502 Bad Gateway</html>", 200, "none of the figures"),
    (b"\xff\xfe\x00vllm:num_requests_running", 200, "none of the figures"),
    ('{"error": "Loading model"}', 200, "none of the figures"), ("python_info 1", 200, "none of the figures"),
    ("vllm:num_requests_running 1", 404, "answered 404"),
])  # fmt: skip
async def test_collector_says_what_is_wrong(watch: Watch, body: str, status: int, error: str) -> None:
    server = await watch.coder()
    server.text, server.status = body, status
    async with collecting(watch):
        seen = (await watch.sample()).engines["coder"]
    assert error in (seen.error or "")
    assert seen.values == {}


async def test_collector_tells_engines_on_one_port_apart(watch: Watch) -> None:
    server = await watch.coder()
    counting(server, 40)
    async with collecting(watch):
        await watch.until(lambda s: s.engines["coder"].get(Metric.DECODE) is not None)
        watch.engines = {"coder": watch.engine(server.url, fingerprint="f2")}
        fresh = await watch.until(lambda s: s.engines["coder"].get(Metric.DECODE) is None)
        again = await watch.until(lambda s: s.engines["coder"].get(Metric.DECODE) is not None)
        watch.engines = {}
        gone = await watch.until(lambda s: not s.engines)
    assert fresh.engines["coder"].get(Metric.RUNNING) == 1.0
    assert again.engines["coder"].get(Metric.DECODE) == pytest.approx(40.0)
    assert gone.memory is not None


SLOT = {"n_ctx": 4096, "is_processing": True, "id_task": 1, "n_prompt_tokens": 1024}


async def test_collector_reads_slots(watch: Watch) -> None:
    """llama.cpp's decode comes from /slots while its counters stand still; without /slots from the counters."""
    server = await watch.new_engine()
    server.text = "llamacpp:tokens_predicted_total 0\nllamacpp:requests_processing 1\n"
    decoded = itertools.count(30, 30)

    def step() -> None:
        server.slots = [SLOT | {"next_token": [{"n_decoded": next(decoded)}]}]

    server.step = step
    watch.engines = {"coder": watch.engine(server.url, kind=EngineKind.LLAMACPP)}
    async with collecting(watch):
        live = await watch.until(lambda s: s.engines["coder"].get(Metric.DECODE))
        server.step, server.slots = lambda: None, None
        without = await watch.until(lambda s: s.engines["coder"].get(Metric.DECODE) == 0.0)
    assert live.engines["coder"].get(Metric.DECODE) == pytest.approx(30.0)
    assert live.engines["coder"].get(Metric.KV_USED) == 0.25
    assert live.engines["coder"].get(Metric.KV_CAPACITY) == 4096
    assert without.engines["coder"].get(Metric.KV_CAPACITY) is None


async def test_an_idle_llama_server_is_not_asked_for_its_slots(watch: Watch) -> None:
    """Builds up to summer 2026 write each such question into their log. Its first answer tells the capacity; what runs later is seen."""
    server = await watch.new_engine()
    server.text = "llamacpp:tokens_predicted_total 7\nllamacpp:requests_processing 0\n"
    server.slots = [{"n_ctx": 4096, "is_processing": False}]
    watch.engines = {"coder": watch.engine(server.url, kind=EngineKind.LLAMACPP)}
    async with collecting(watch):
        await watch.until(lambda _: server.asked > 4)
        idle = await watch.sample()
        assert server.slots_asked == 1
        server.text = "llamacpp:tokens_predicted_total 7\nllamacpp:requests_processing 1\n"
        server.slots = [SLOT | {"next_token": [{"n_decoded": 30}]}]
        busy = await watch.until(lambda s: s.engines["coder"].get(Metric.RUNNING))
        server.text = "llamacpp:tokens_predicted_total 47\nllamacpp:requests_processing 0\n"
        over = await watch.until(lambda s: not s.engines["coder"].get(Metric.RUNNING))
    seen = [sample.engines["coder"] for sample in (idle, busy, over)]
    assert (seen[0].get(Metric.KV_CAPACITY), seen[0].get(Metric.DECODE)) == (4096, 0)
    assert [each.get(Metric.KV_USED) for each in seen] == [0, 0.25, 0]
    assert seen[1].get(Metric.DECODE) > 0
    assert seen[2].get(Metric.DECODE) > 0
