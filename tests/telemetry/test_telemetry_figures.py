"""Raw figures of engines: what moves while an engine works; and a GB10's stuck low-power state."""

import asyncio
import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from running_collector import Watch, collecting, idle

from sparkdash.domain.metric import EngineFigures, Gpu
from sparkdash.domain.profile import EngineKind
from sparkdash.engines.registry import ATLAS, adapter
from sparkdash.telemetry import source
from sparkdash.telemetry.derive import EngineHistory, figures_of
from sparkdash.telemetry.power import LASTS_S, LowPowerDetector, is_stuck, low_power_w, shows_low_power
from sparkdash.telemetry.reading import Reading, parse_slots

NOTHING = EngineFigures()


def figured(kind: EngineKind, reading: Reading, before: EngineFigures = NOTHING) -> EngineFigures:
    return figures_of(reading, adapter(kind).metrics, before)


def test_a_vllm_at_work_tells_all_figures(recorded: Callable[[str], Any], reading: Callable[..., Reading]) -> None:
    text = recorded("real-vllm-0.32.0-smallkv-midload.txt")
    told = figured(EngineKind.VLLM, reading(EngineKind.VLLM, text, 7.0))
    assert (told.answered_at, told.running, told.waiting, told.deferred) == (7.0, 8.0, 0.0, 0.0)
    assert told.kv_used == 0.9069767441860466
    assert told.asleep is None
    assert told.is_live
    steps = next(line for line in text.splitlines() if line.startswith("vllm:iteration_tokens_total_count"))
    assert float(steps.split()[-1]) in told.progress


@pytest.mark.parametrize(("kind", "before", "after"), [
    (EngineKind.VLLM, "real-vllm-0.32.0-base-before.txt", "real-vllm-0.32.0-base-after.txt"),
    (EngineKind.VLLM, "vllm-0.11.2.txt", "vllm-0.11.2-t1.txt"),
    (EngineKind.SGLANG, "sglang-0.5.4.post3.txt", "sglang-0.5.4.post3-t1.txt"),
    (EngineKind.SGLANG, "sglang-0.5.23.txt", "sglang-0.5.23-t1.txt"),
    (EngineKind.LLAMACPP, "llamacpp-0c1e57098.txt", "llamacpp-0c1e57098-t1.txt"),
])  # fmt: skip
def test_progress_differs_between_two_looks_at_an_engine_that_worked(
    kind: EngineKind, before: str, after: str, recorded: Callable[[str], Any], reading: Callable[..., Reading]
) -> None:
    first, again, later = (figured(kind, reading(kind, recorded(name))) for name in (before, before, after))
    assert first.progress == again.progress
    assert first.progress != later.progress


def test_a_sleeping_vllm_says_so(reading: Callable[..., Reading]) -> None:
    """The gauge of the state `awake` is 0 while it sleeps; an engine without the gauge tells nothing."""
    asleep = 'vllm:engine_sleep_state{sleep_state="awake"} 0\nvllm:engine_sleep_state{sleep_state="discard_all"} 1\n'
    assert figured(EngineKind.VLLM, reading(EngineKind.VLLM, asleep)).asleep is True
    awake = 'vllm:engine_sleep_state{sleep_state="awake"} 1\nvllm:engine_sleep_state{sleep_state="discard_all"} 0\n'
    assert figured(EngineKind.VLLM, reading(EngineKind.VLLM, awake)).asleep is False
    assert figured(EngineKind.VLLM, reading(EngineKind.VLLM, "vllm:num_requests_running 0")).asleep is None


def test_deferred_requests_are_told_apart(reading: Callable[..., Reading]) -> None:
    text = (
        'vllm:num_requests_waiting 3\nvllm:num_requests_waiting_by_reason{reason="deferred"} 1\n'
        'vllm:num_requests_waiting_by_reason{reason="capacity"} 2\n'
    )
    told = figured(EngineKind.VLLM, reading(EngineKind.VLLM, text))
    assert (told.waiting, told.deferred) == (3, 1)
    sglang = figured(EngineKind.SGLANG, reading(EngineKind.SGLANG, "sglang:num_grammar_queue_reqs 2"))
    assert sglang.deferred == 2


def test_a_counter_that_an_answer_lacks_has_not_moved(reading: Callable[..., Reading]) -> None:
    whole = "vllm:generation_tokens_total 5\nvllm:prompt_tokens_total 7\nvllm:iteration_tokens_total_count 3\n"
    before = figured(EngineKind.VLLM, reading(EngineKind.VLLM, whole))
    lacking = figured(EngineKind.VLLM, reading(EngineKind.VLLM, "vllm:generation_tokens_total 5\n"), before)
    assert lacking.progress == before.progress


def test_aborts_are_no_progress_of_vllm(reading: Callable[..., Reading]) -> None:
    text = 'vllm:generation_tokens_total 5\nvllm:request_success_total{finished_reason="abort"} '
    before, after = (figured(EngineKind.VLLM, reading(EngineKind.VLLM, text + count)) for count in "12")
    assert before.progress == after.progress


def test_figures_that_move_only_at_the_end_of_a_request_say_so(reading: Callable[..., Reading]) -> None:
    """A long answer of TensorRT-LLM or Atlas moves nothing meanwhile, and its gauges are of the last request."""
    assert not figured(EngineKind.TRTLLM, reading(EngineKind.TRTLLM, "trtllm_generation_tokens_total 5")).is_live
    text = "atlas_requests_total 1\natlas_requests_active 1"
    assert not figures_of(reading(EngineKind.OPENAI, text, names=ATLAS), ATLAS, NOTHING).is_live


def _told(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row | {"n_ctx": 4096, "next_token": [{"n_decoded": row["n_decoded"] or 0}]} for row in rows]


def test_llama_servers_prefill_moves_by_its_slots(
    recorded: Callable[[str], Any], reading: Callable[..., Reading]
) -> None:
    """In a recorded prefill of 220 s every step but two moves the prompt's progress, a token, or the KV use."""
    history, told = EngineHistory(), []
    for look in recorded("real-llama.cpp-0c1e57098-prefill-timeline.json")["timeline"]:
        text = "\n".join(f"{name} {value}" for name, value in look["metrics"].items())
        history.add(reading(EngineKind.LLAMACPP, text, look["t"]), parse_slots(json.dumps(_told(look["slots"]))))
        assert history.last is not None
        told.append(figured(EngineKind.LLAMACPP, history.last, told[-1] if told else NOTHING))
    moved = [
        (before.progress, before.prompt_progress, before.kv_used) != (now.progress, now.prompt_progress, now.kv_used)
        for before, now in pairwise(told)
        if now.running
    ]
    assert len(moved) > 10
    assert moved.count(False) <= 2


def _looping(decodes: int, decoded: int) -> tuple[str, bytes]:
    slot = (
        f'[{{"n_ctx": 4096, "is_processing": true, "id_task": 1, "n_prompt_tokens": 9, '
        f'"n_prompt_tokens_processed": 9, "next_token": [{{"n_decoded": {decoded}}}]}}]'
    )
    return f"llamacpp:n_decode_total {decodes}\nllamacpp:requests_processing 1\n", slot.encode()


def test_a_llama_server_that_replays_a_rejected_draft_makes_no_progress(reading: Callable[..., Reading]) -> None:
    history, without, told, blind = EngineHistory(), EngineHistory(), [], []
    for decodes in (1, 100):
        text, body = _looping(decodes, decoded=4)
        history.add(reading(EngineKind.LLAMACPP, text, float(decodes)), parse_slots(body))
        without.add(reading(EngineKind.LLAMACPP, text, float(decodes)))
        assert history.last
        assert without.last
        told.append(figured(EngineKind.LLAMACPP, history.last).progress)
        blind.append(figured(EngineKind.LLAMACPP, without.last).progress)
    assert told[0] == told[1]
    assert blind[0] != blind[1]


async def test_a_collector_tells_the_figures_of_the_engine_that_is_there_now(watch: Watch) -> None:
    server = await watch.coder()
    server.text = "vllm:num_requests_running 2\nvllm:generation_tokens_total 7"
    async with idle(watch) as made:
        assert made.figures("coder") is None
        assert made.figures("nobody") is None
        await made.begin("coder")
        told = made.figures("coder")
        assert (told.running, told.answered_at, told.unanswered_since) == (2, watch.time.now, None)
        assert 7 in told.progress
        watch.engines = {"coder": watch.engine(server.url, container="another")}
        assert made.figures("coder") is None


async def test_an_engine_that_does_not_answer_is_unanswered_since_the_first_question(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, time = await watch.coder(), watch.time
    server.text = "vllm:num_requests_running 2"

    def told() -> Any:
        figures = made.figures("coder")
        return figures.unanswered_since, figures.answered_at, figures.running

    async with idle(watch) as made:
        await made.begin("coder")
        asked = made._sources["coder"]
        server.free.clear()
        time.now += 10
        with monkeypatch.context() as short:
            short.setattr(source, "ANSWER_S", 0.05)  # only while the engine is silent: a busy box answers later
            first = asked.ask()
            assert told()[0] == time.now
            await asyncio.wait({first})
            time.now += 10
            await asyncio.wait({asked.ask()})
        assert told() == (time.now - 10, time.now - 20, 2)
        server.free.set()
        await asyncio.wait({asked.ask()})
        assert told() == (None, time.now, 2)


async def test_an_answer_without_figures_is_an_answer(watch: Watch) -> None:
    """A vLLM without statistics answers; it is not silent, and has no figures."""
    (await watch.coder()).text = "python_info 1"
    async with idle(watch) as made:
        await made.begin("coder")
        assert made.figures("coder") == EngineFigures()


async def test_an_engine_with_requests_is_asked_every_five_seconds_whatever_the_owner_set(watch: Watch) -> None:
    server = await watch.coder()
    server.text = "vllm:num_requests_running 0"
    async with collecting(watch, sample_s=60):
        first = await watch.sample()
        await watch.until(lambda s: s.at >= first.at + 600)
        at_rest = server.asked
        watch.engines = {"coder": watch.engine(server.url, in_flight=1)}
        await watch.until(lambda s: s.at >= first.at + 1200)
    assert at_rest <= 20
    assert server.asked - at_rest >= 100


async def test_the_gpus_last_figures_are_kept_for_the_judgement_of_liveness(watch: Watch) -> None:
    watch.box.gpu_now = Gpu(name="NVIDIA GB10", power_w=40.0, utilization=0.9)
    async with collecting(watch):
        sample = await watch.sample()
        gpu = watch.collector.gpu
    assert (gpu.power_w, gpu.low_w, gpu.utilization) == (40.0, 30.0, 0.9)
    assert sample.at - watch.time.unix() + watch.time.now == pytest.approx(gpu.looked_at, abs=2)


STUCK = Gpu(utilization=0.96, sm_clock_mhz=799, power_w=19.5)
HEALTHY = Gpu(utilization=0.96, sm_clock_mhz=2281, power_w=92.5)


@pytest.mark.parametrize("change", [
    {"utilization": 0.89}, {"sm_clock_mhz": 1400}, {"power_w": 30}, {"throttle": ("thermal",)},
    {"throttle": ("power cap",)}, {"throttle": ("clock setting",)}, {"utilization": None}, {"sm_clock_mhz": None},
    {"power_w": None},
])  # fmt: skip
def test_one_figure_otherwise_and_it_is_not(change: dict[str, Any]) -> None:
    assert not shows_low_power(STUCK.model_copy(update=change))


def test_one_look_is_not_enough() -> None:
    """A look may fall between two kernels."""
    assert not is_stuck([STUCK])
    assert is_stuck([STUCK, STUCK])
    assert not is_stuck([STUCK, HEALTHY])


def test_it_must_last() -> None:
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


def test_only_a_gb10_has_a_limit_below_which_it_computes_nothing() -> None:
    assert low_power_w("NVIDIA GB10") == 30.0
    assert low_power_w("NVIDIA H200") is None
    assert low_power_w(None) is None
