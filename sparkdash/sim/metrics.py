"""Counters and histograms of the simulated engine that sparkdash reads, updated at the same moments as vLLM's."""

import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

TTFT_LE = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    160.0, 640.0, 2560.0,
)  # fmt: skip
ITL_LE = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
LATENCY_LE = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
    1920.0, 7680.0,
)  # fmt: skip
TOKENS_LE = tuple(float(m * 10**e) for e in range(6) for m in (1, 2, 5))
STEP_LE = (1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0)


class Histogram:
    """Cumulative histogram of Prometheus."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def cumulative(self) -> Iterator[tuple[str, int]]:
        """Yield (le, count up to it), "+Inf" last."""
        seen = 0
        for bound, count in zip((*self.bounds, None), self.counts, strict=True):
            seen += count
            yield ("+Inf" if bound is None else repr(bound)), seen


class SimulatedCounters:
    """All counters that only grow. `positions`: draft tokens per step; 0 without speculation."""

    def __init__(self, positions: int) -> None:
        self.positions = positions
        self.queries = self.hits = self.prompt = self.prompt_cached = self.generated = 0
        self.preemptions = self.drafts = 0
        self.accepted_at = [0] * positions
        self.finished = dict.fromkeys(("stop", "length", "abort", "error", "repetition"), 0)
        self.ttft, self.itl, self.prefill = Histogram(TTFT_LE), Histogram(ITL_LE), Histogram(LATENCY_LE)
        self.step_tokens, self.computed_lengths = Histogram(STEP_LE), Histogram(TOKENS_LE)

    @property
    def prompt_computed(self) -> int:
        return self.prompt - self.prompt_cached

    def admitted(self, prompt: int, hit: int) -> None:
        """Count a prefix cache lookup, once per request at admission."""
        self.queries += prompt
        self.hits += hit

    def first_token(self, prompt: int, cached: int, seconds: float) -> None:
        self.prompt += prompt
        self.prompt_cached += cached
        self.ttft.observe(seconds)

    def drafted(self, accepted: int) -> None:
        self.drafts += 1
        for position in range(accepted):
            self.accepted_at[position] += 1

    def stepped(self, tokens: int) -> None:
        """Count a step with output: generated tokens, and computed ones of prompts that gave their first token."""
        self.step_tokens.observe(tokens)

    def done(self, reason: str, *, computed: int, prefill_s: float) -> None:
        self.finished[reason] += 1
        self.prefill.observe(prefill_s)
        self.computed_lengths.observe(computed)


STARTED = time.time()
"""Approximate start of this process, in Unix seconds."""


@dataclass(frozen=True, slots=True)
class SimulatedGauges:
    """Current values of the engine's gauges."""

    model: str
    running: int
    waiting: int
    kv_usage: float
    block: int
    blocks: int
    context: int
    kv_bytes: int


Sample = tuple[str, Mapping[str, object], float]
LABEL = "# SIMULATED: no engine was measured, every figure is invented.\n"


def exposition(counters: SimulatedCounters, gauges: SimulatedGauges) -> str:
    """Samples with vLLM's names, in its order, under a comment that says what they are."""
    own = {"engine": "0", "model_name": gauges.model}
    samples: list[Sample] = [("process_start_time_seconds", {}, STARTED)]
    samples += [(f"vllm:{name}", {**own, **labels}, value) for name, labels, value in _figures(counters, gauges)]
    size = gauges.blocks * gauges.block
    cache = {
        "block_size": gauges.block, "cache_dtype": "auto", "enable_prefix_caching": True,
        "kv_cache_max_concurrency": size / gauges.context, "kv_cache_memory_bytes": gauges.kv_bytes,
        "kv_cache_size_tokens": size, "num_gpu_blocks": gauges.blocks, "prefix_caching_hash_algo": "sha256",
        "engine": "0",
    }  # fmt: skip
    return LABEL + "".join(map(_line, [*samples, ("vllm:cache_config_info", cache, 1)]))


_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def _line(sample: Sample) -> str:
    name, labels, value = sample
    shown = ",".join(f'{key}="{str(text).translate(_ESCAPES)}"' for key, text in sorted(labels.items()))
    return f"{name}{{{shown}}} {float(value)!r}\n"


def _figures(counters: SimulatedCounters, gauges: SimulatedGauges) -> Iterator[Sample]:
    if counters.positions:
        yield "spec_decode_num_drafts_total", {}, counters.drafts
        yield "spec_decode_num_draft_tokens_total", {}, counters.drafts * counters.positions
        yield "spec_decode_num_accepted_tokens_total", {}, sum(counters.accepted_at)
        yield from _by(
            "spec_decode_num_accepted_tokens_per_pos_total", "position", dict(enumerate(counters.accepted_at))
        )
    yield "num_requests_running", {}, gauges.running
    yield "num_requests_waiting", {}, gauges.waiting
    yield from _by("num_requests_waiting_by_reason", "reason", {"capacity": gauges.waiting, "deferred": 0})
    yield from _by("engine_sleep_state", "sleep_state", {"awake": 1, "weights_offloaded": 0, "discard_all": 0})
    yield "kv_cache_usage_perc", {}, gauges.kv_usage
    yield "num_preemptions_total", {}, counters.preemptions
    yield "prefix_cache_queries_total", {}, counters.queries
    yield "prefix_cache_hits_total", {}, counters.hits
    yield "prompt_tokens_total", {}, counters.prompt
    sources = {"local_compute": counters.prompt_computed, "local_cache_hit": counters.prompt_cached}
    yield from _by("prompt_tokens_by_source_total", "source", {**sources, "external_kv_transfer": 0})
    yield "prompt_tokens_cached_total", {}, counters.prompt_cached
    yield "generation_tokens_total", {}, counters.generated
    yield from _by("request_success_total", "finished_reason", counters.finished)
    for name, values in (
        ("iteration_tokens_total", counters.step_tokens),
        ("time_to_first_token_seconds", counters.ttft),
        ("inter_token_latency_seconds", counters.itl),
        ("request_prefill_time_seconds", counters.prefill),
        ("request_prefill_kv_computed_tokens", counters.computed_lengths),
    ):
        yield from _by(f"{name}_bucket", "le", dict(values.cumulative()))
        yield f"{name}_count", {}, sum(values.counts)
        yield f"{name}_sum", {}, values.total


def _by(name: str, label: str, values: Mapping[Any, float]) -> Iterator[Sample]:
    return ((name, {label: one}, value) for one, value in values.items())
