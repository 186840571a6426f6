"""The formulas against what real engines answered, and against values computed elsewhere."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from sparkdash.domain.metric import Metric
from sparkdash.domain.profile import EngineKind
from sparkdash.telemetry.derive import Derived, EngineHistory
from sparkdash.telemetry.reading import Reading

VLLM = ("0.11.2", "0.16.0", "0.20.2", "0.24.0", "0.28.0", "0.33.0")
SGLANG = ("0.5.9", "0.5.12.post1", "0.5.18", "0.5.23")
REAL = ("base", "draft", "mtp", "ngram", "eagle3")
SPECULATION = ("draft", "ngram-mod", "ngram-simple")

Between = Callable[..., Derived]
Recorded = Callable[[str], Any]
Read = Callable[..., Reading]


def _sum(text: str, name: str) -> float:
    return sum(float(value) for value in re.findall(rf"^vllm:{name}{{.*}} (.*)$", text, re.M))


@pytest.mark.parametrize("version", VLLM)
def test_recorded_vllm(version: str, between: Between, recorded: Recorded) -> None:
    values, acceptance_at, *_ = between(EngineKind.VLLM, f"vllm-{version}.txt", f"vllm-{version}-t1.txt")
    told = recorded(f"vllm-{version}-expected.json")
    before, after = recorded(f"vllm-{version}.txt"), recorded(f"vllm-{version}-t1.txt")
    firsts = _sum(after, "time_to_first_token_seconds_count") - _sum(before, "time_to_first_token_seconds_count")
    decoding_s = _sum(after, "inter_token_latency_seconds_sum") - _sum(before, "inter_token_latency_seconds_sum")
    told = told["expected"] | {"delta": told["delta"]}
    assert acceptance_at == pytest.approx(told["per_pos_acceptance"])
    assert values == pytest.approx(
        {
            Metric.DECODE: told["decode_tok_s"],
            Metric.DECODE_EACH: (told["delta"]["generation_tokens"] - firsts) / decoding_s,
            Metric.PROMPT_SPEED: None,  # its histograms are trimmed off
            Metric.PREFILL: told["prefill_tok_s_computed"],
            Metric.PREFIX_HIT: told["prefix_hit_rate_interval"],
            Metric.PREFIX_HIT_LIFETIME: told["prefix_hit_rate_interval"],
            Metric.KV_USED: told["kv_usage"],
            Metric.KV_CAPACITY: told["kv_capacity_tokens"],
            Metric.RUNNING: told["num_running"],
            Metric.WAITING: told["num_waiting"],
            Metric.ACCEPTANCE: told["acceptance_rate"],
            Metric.ACCEPTANCE_LENGTH: told["mean_acceptance_length"],
            Metric.TTFT_P50: told["quantiles_interval"]["ttft_s"]["p50"],
            Metric.TTFT_P95: told["quantiles_interval"]["ttft_s"]["p95"],
            Metric.PREEMPTIONS: 0.0,
        }
    )


@pytest.mark.parametrize("mode", REAL)
def test_recorded_real_vllm(mode: str, between: Between, recorded: Recorded) -> None:
    files = (f"real-vllm-0.32.0-{mode}-before.txt", f"real-vllm-0.32.0-{mode}-after.txt")
    values, acceptance_at, *_ = between(EngineKind.VLLM, *files, seconds=10.0)
    told = recorded(f"real-vllm-0.32.0-{mode}-expected.json")
    expected, delta = told["expected"], told["delta"]
    assert values[Metric.DECODE] == pytest.approx(delta["generation_tokens"] / 10)
    assert values[Metric.PREFILL] == pytest.approx(delta["local_compute"] / 10)
    assert values[Metric.PREFIX_HIT] == pytest.approx(expected["prefix_hit_rate_interval"])
    assert values[Metric.ACCEPTANCE] == pytest.approx(expected["acceptance_rate"])
    assert values[Metric.ACCEPTANCE_LENGTH] == pytest.approx(expected["mean_acceptance_length"])
    assert (acceptance_at and list(acceptance_at)) == pytest.approx(expected["per_pos_acceptance"])
    assert values[Metric.TTFT_P50] == pytest.approx(expected["ttft_s"]["p50"])
    assert values[Metric.TTFT_P95] == pytest.approx(expected["ttft_s"]["p95"])


@pytest.mark.parametrize(("kind", "files", "tokens", "seconds"), [
    (EngineKind.VLLM, "real-vllm-0.32.0-base", 1566.0, 1.043671723),
    (EngineKind.VLLM, "real-vllm-0.32.0-draft", 1338.0, 2.104135732),
    (EngineKind.LLAMACPP, "real-llama.cpp-0c1e57098-base", 896, 0.057741),
])  # fmt: skip
def test_the_prompt_speed_of_a_real_engine_is_its_tokens_by_its_own_seconds(
    kind: EngineKind, files: str, tokens: float, seconds: float, between: Between
) -> None:
    values = between(kind, f"{files}-before.txt", f"{files}-after.txt", seconds=40.0).values
    assert values[Metric.PROMPT_SPEED] == pytest.approx(tokens / seconds)
    assert values[Metric.PREFILL] == pytest.approx(tokens / 40)


def test_the_prompt_speed_is_unknown_while_no_prompt_is_computed(between: Between) -> None:
    file = "real-vllm-0.32.0-base-after.txt"
    assert between(EngineKind.VLLM, file, file).values[Metric.PROMPT_SPEED] is None


def test_recorded_real_vllm_at_work(between: Between) -> None:
    files = ("real-vllm-0.32.0-live-midload.txt", "real-vllm-0.32.0-live-after.txt")
    before = between(EngineKind.VLLM, files[0], files[0]).values
    after = between(EngineKind.VLLM, *files).values
    assert before[Metric.RUNNING] == 4.0
    assert before[Metric.WAITING] == 4.0
    assert after[Metric.RUNNING] == 0.0
    assert after[Metric.DECODE] > 0


def test_recorded_preemptions(recorded: Recorded, reading: Read) -> None:
    history = EngineHistory()
    history.add(reading(EngineKind.VLLM, recorded("real-vllm-0.32.0-smallkv-midload.txt")))
    values = history.derive().values
    assert values[Metric.PREEMPTIONS] > 0
    assert values[Metric.KV_USED] == pytest.approx(117 / 129, abs=1e-3)


def test_recorded_data_parallel(recorded: Recorded, reading: Read) -> None:
    """Two engines behind one vLLM: counters and caches are summed, the cache's use is their mean."""
    seen = reading(EngineKind.VLLM, recorded("real-vllm-0.32.0-dp2-after.txt"))
    one = reading(EngineKind.VLLM, recorded("real-vllm-0.32.0-base-after.txt"))
    assert seen.counters.generated == 2560 + 1536
    assert seen.counters.prefilled == 195 + 105
    assert seen.gauges.kv_used == 0.0
    assert one.gauges.kv_capacity == 1048576
    assert seen.gauges.kv_capacity == 2 * 1048576
    assert seen.started is None


@pytest.mark.parametrize("dialect", ["multiproc", "rustfrontend"])
def test_recorded_dialects(dialect: str, recorded: Recorded, reading: Read) -> None:
    seen = reading(EngineKind.VLLM, recorded(f"vllm-0.33.0-{dialect}.txt"))
    assert None not in seen.counters._replace(timed_prompt=0.0, prompt_s=0.0)  # trimmed off
    assert seen.counters.draft_tokens == 3 * (seen.counters.drafts or 0)
    assert sum(seen.accepted_at.values()) == seen.counters.accepted
    assert len(seen.ttft) == 23
    assert seen.started is None
    if dialect == "rustfrontend":
        assert (seen.gauges.kv_capacity, seen.gauges.kv_used) == (None, 0.0473)


@pytest.mark.parametrize("version", SGLANG)
def test_recorded_sglang(version: str, between: Between, recorded: Recorded) -> None:
    values, acceptance_at, *_ = between(EngineKind.SGLANG, f"sglang-{version}.txt", f"sglang-{version}-t1.txt")
    told = recorded(f"sglang-{version}-expected.json")["expected"]
    assert values[Metric.DECODE] == pytest.approx(told["decode_tok_s_realtime"])
    assert values[Metric.PREFILL] == pytest.approx(told["prefill_tok_s_realtime"])
    assert values[Metric.PREFIX_HIT] == pytest.approx(told["prefix_hit_rate_interval"])
    assert values[Metric.ACCEPTANCE] == pytest.approx(told["accept_rate"])
    assert values[Metric.ACCEPTANCE_LENGTH] == pytest.approx(told["accept_length"])
    assert values[Metric.KV_USED] == pytest.approx(told["kv_usage"])
    assert values[Metric.KV_CAPACITY] == told["kv_capacity_tokens"]
    assert values[Metric.TTFT_P50] == pytest.approx(told["quantiles_interval"]["ttft_s"]["p50"])
    assert values[Metric.TTFT_P95] == pytest.approx(told["quantiles_interval"]["ttft_s"]["p95"])
    assert acceptance_at is None


def test_recorded_sglang_without_live_counters(between: Between, recorded: Recorded) -> None:
    """SGLang before 0.5.8 tells decode by a gauge and cache hits at a request's end; prefill and capacity are unknown."""
    values = between(EngineKind.SGLANG, "sglang-0.5.4.post3.txt", "sglang-0.5.4.post3-t1.txt").values
    told = recorded("sglang-0.5.4.post3-expected.json")
    assert values[Metric.DECODE] == told["expected"]["gen_throughput_gauge"]
    assert values[Metric.PREFIX_HIT] == pytest.approx(told["delta"]["cached"] / told["delta"]["prompt"])
    assert values[Metric.PREFILL] is None
    assert values[Metric.KV_CAPACITY] is None
    assert values[Metric.ACCEPTANCE_LENGTH] == told["expected"]["accept_length"]


def test_recorded_llamacpp_counters(between: Between) -> None:
    values, acceptance_at, *_ = between(EngineKind.LLAMACPP, "llamacpp-0c1e57098.txt", "llamacpp-0c1e57098-t1.txt")
    assert values[Metric.DECODE] == pytest.approx((2194 - 2098) / 5)
    assert values[Metric.PREFILL] == pytest.approx((24191 - 18734) / 5)
    assert values[Metric.PREFIX_HIT] == pytest.approx(19840 / (19840 + 5457))
    assert values[Metric.PREFIX_HIT_LIFETIME] == values[Metric.PREFIX_HIT]
    assert values[Metric.ACCEPTANCE] == pytest.approx((1357 - 1296) / (2061 - 1968))
    assert values[Metric.ACCEPTANCE_LENGTH] == pytest.approx(1 + (1357 - 1296) / (687 - 656))
    assert acceptance_at == pytest.approx((28 / 31, 21 / 31, 12 / 31))
    assert (values[Metric.RUNNING], values[Metric.WAITING]) == (1.0, 1.0)
    assert values[Metric.KV_CAPACITY] is None
    assert values[Metric.TTFT_P50] is None


@pytest.mark.parametrize("mode", SPECULATION)
def test_recorded_real_llamacpp(mode: str, between: Between, reading: Read, recorded: Recorded) -> None:
    files = [f"real-llama.cpp-0c1e57098-{mode}-{when}.txt" for when in ("before", "after")]
    values, acceptance_at, *_ = between(EngineKind.LLAMACPP, *files)
    after = reading(EngineKind.LLAMACPP, recorded(files[1]))
    assert sum(acceptance_at) + 1 == pytest.approx(values[Metric.ACCEPTANCE_LENGTH])
    assert list(acceptance_at) == sorted(acceptance_at, reverse=True)
    assert values[Metric.ACCEPTANCE] == pytest.approx(
        (after.counters.accepted or 0) / (after.counters.draft_tokens or 1)
    )


def test_recorded_real_llamacpp_without_speculation(between: Between) -> None:
    """llama.cpp's speculation counters are there at 0 without speculation: nothing was drafted, so nothing is known."""
    files = ("real-llama.cpp-0c1e57098-base-before.txt", "real-llama.cpp-0c1e57098-base-after.txt")
    values, acceptance_at, *_ = between(EngineKind.LLAMACPP, *files)
    assert (values[Metric.ACCEPTANCE], values[Metric.ACCEPTANCE_LENGTH], acceptance_at) == (None, None, None)


def test_recorded_old_llamacpp(recorded: Recorded, reading: Read) -> None:
    """A build of spring 2026 has neither cache nor speculation counters: both are unknown, not 0."""
    counters = reading(EngineKind.LLAMACPP, recorded("llamacpp-2026-05.txt")).counters
    assert counters.generated == 2098
    assert (counters.hits, counters.queries, counters.drafts, counters.accepted) == (None, None, None, None)
    rounded = reading(EngineKind.LLAMACPP, recorded("llamacpp-0c1e57098-bigcounters.txt")).counters
    assert rounded.prefilled > 1e6  # it prints six digits: 1.23457e+07


def test_recorded_trtllm(recorded: Recorded, reading: Read) -> None:
    text = recorded("trtllm-main-prometheus.txt")
    seen = reading(EngineKind.TRTLLM, text)
    assert seen.counters.generated == 6321
    assert (seen.counters.hits, seen.counters.queries) == (26880, 61440)
    assert (seen.counters.drafts, seen.counters.draft_tokens) == (2400, 7200)
    assert seen.gauges.kv_used == 0.0615
    assert (seen.gauges.running, seen.gauges.waiting) == (2.0, 0.0)
    history = EngineHistory()
    history.add(reading(EngineKind.TRTLLM, re.sub(r" [\d.]+$", " 0", text, flags=re.MULTILINE), 0.0))
    history.add(reading(EngineKind.TRTLLM, text, 60.0))
    values, acceptance_at, *_ = history.derive()
    assert values[Metric.PREFILL] == pytest.approx((61440 - 26880) / 60)
    assert values[Metric.PREFIX_HIT] == pytest.approx(26880 / 61440)
    assert values[Metric.ACCEPTANCE] == pytest.approx((1920 + 1296 + 705) / 7200)
    assert values[Metric.ACCEPTANCE_LENGTH] == pytest.approx(1 + (1920 + 1296 + 705) / 2400)
    assert acceptance_at == pytest.approx((0.8, 0.54, 705 / 2400))


def test_ranks_of_one_replica_are_one_engine_and_replicas_add_up(recorded: Recorded, reading: Read) -> None:
    """SGLang with `--enable-metrics-for-all-schedulers`: both ranks of a tensor parallel engine tell the same figures."""
    text = recorded("sglang-two-tp-ranks.txt")
    one = reading(EngineKind.SGLANG, text)
    assert (one.gauges.running, one.gauges.kv_capacity, one.gauges.decode) == (2, 100_000, 40)
    assert (one.gauges.kv_used, one.counters.generated) == (0.3, 1000)
    replicas = "\n".join(line.replace("{", f'{{dp_rank="{rank}",') for rank in (0, 1) for line in text.splitlines())
    two = reading(EngineKind.SGLANG, replicas)
    assert (two.gauges.running, two.gauges.kv_capacity, two.counters.generated) == (4, 200_000, 2000)
    assert two.gauges.kv_used == 0.3


def test_a_process_that_was_started_again_leaves_a_copy_behind(reading: Read) -> None:
    """TensorRT-LLM's gauges carry the pid, and those of an ended process stay."""
    name = "trtllm_num_requests_running"
    text = f'{name}{{model_name="m",pid="7"}} 1.0\n{name}{{model_name="m",pid="9"}} 3.0'
    assert reading(EngineKind.TRTLLM, text).gauges.running == 3
