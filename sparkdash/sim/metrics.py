"""Counters and histograms of the simulated engine that sparkdash reads, updated at the same moments as vLLM's."""

from __future__ import annotations

import os
import platform
import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

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


Labelled = tuple[str, Mapping[str, float]]
"""Name of a label, and a value for each of its values."""


_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class _Page:
    """Lines of an exposition under construction."""

    def __init__(self, model: str) -> None:
        self.lines: list[str] = []
        self._labels = {"engine": "0", "model_name": model}

    def bare(self, name: str, kind: str, value: float, text: str, **labels: str) -> None:
        self._head(name, kind, text)
        self._line(name, labels, value)

    def gauge(self, name: str, text: str, value: Labelled | float) -> None:
        self._head(name, "gauge", text)
        for extra, one in self._children(value):
            self._line(name, extra, one)

    def counter(self, name: str, text: str, value: Labelled | float) -> None:
        self._head(f"{name}_total", "counter", text)
        for extra, one in self._children(value):
            self._line(f"{name}_total", extra, one)

    def _children(self, value: Labelled | float) -> list[tuple[dict[str, str], float]]:
        if not isinstance(value, tuple):
            return [(self._labels, value)]
        label, children = value
        return [(self._with((label, name)), one) for name, one in children.items()]

    def histogram(self, name: str, text: str, values: Histogram) -> None:
        self._head(name, "histogram", text)
        for bound, count in values.cumulative():
            self._line(f"{name}_bucket", self._with(("le", bound)), count)
        self._line(f"{name}_count", self._labels, sum(values.counts))
        self._line(f"{name}_sum", self._labels, values.total)

    def _with(self, extra: tuple[str, str]) -> dict[str, str]:
        return dict(sorted((*self._labels.items(), extra)))

    def _head(self, name: str, kind: str, text: str) -> None:
        self.lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]

    def _line(self, name: str, labels: Mapping[str, str], value: float) -> None:
        shown = ",".join(f'{key}="{text.translate(_ESCAPES)}"' for key, text in labels.items())
        self.lines.append(f"{name}{{{shown}}} {float(value)!r}" if shown else f"{name} {float(value)!r}")


def exposition(counters: SimulatedCounters, gauges: SimulatedGauges) -> str:
    page = _Page(gauges.model)
    _process(page)
    _figures(page, counters, gauges)
    for name, (text, values) in _histograms(counters).items():
        page.histogram(f"vllm:{name}", text, values)
    size = gauges.blocks * gauges.block
    page.bare(
        "vllm:cache_config_info", "gauge", 1.0, "Information of the LLMEngine CacheConfig",
        block_size=str(gauges.block), cache_dtype="auto", enable_prefix_caching="True",
        kv_cache_max_concurrency=str(size / gauges.context), kv_cache_memory_bytes=str(gauges.kv_bytes),
        kv_cache_size_tokens=str(size), num_gpu_blocks=str(gauges.blocks), prefix_caching_hash_algo="sha256",
        engine="0",
    )  # fmt: skip
    return "\n".join(page.lines) + "\n"


def _process(page: _Page) -> None:
    major, minor, patch = platform.python_version_tuple()
    page.bare(
        "python_info", "gauge", 1.0, "Python platform information",
        implementation=platform.python_implementation(), major=major, minor=minor, patchlevel=patch,
    )  # fmt: skip
    page.bare("process_start_time_seconds", "gauge", STARTED, "Start time of the process since unix epoch in seconds.")
    page.bare(
        "process_cpu_seconds_total", "counter", time.process_time(), "Total user and system CPU time spent in seconds."
    )
    page.bare(
        "sparkdash_sim_info", "gauge", 1.0, "This engine is simulated; every figure is invented.", pid=str(os.getpid())
    )


def _figures(page: _Page, counters: SimulatedCounters, gauges: SimulatedGauges) -> None:
    """Write gauges and counters with vLLM's names and texts, in its order."""
    gauge, counter = page.gauge, page.counter
    if counters.positions:
        accepted = {str(position): count for position, count in enumerate(counters.accepted_at)}
        counter("vllm:spec_decode_num_drafts", "Number of spec decoding drafts.", counters.drafts)
        drafted = counters.drafts * counters.positions
        counter("vllm:spec_decode_num_draft_tokens", "Number of draft tokens.", drafted)
        counter("vllm:spec_decode_num_accepted_tokens", "Number of accepted tokens.", sum(counters.accepted_at))
        text = "Accepted tokens per draft position."
        counter("vllm:spec_decode_num_accepted_tokens_per_pos", text, ("position", accepted))
    gauge("vllm:num_requests_running", "Number of requests in model execution batches.", gauges.running)
    gauge("vllm:num_requests_waiting", "Number of requests waiting to be processed.", gauges.waiting)
    waiting = {"capacity": gauges.waiting, "deferred": 0}
    gauge("vllm:num_requests_waiting_by_reason", "Number of waiting requests by reason.", ("reason", waiting))
    states = {"awake": 1, "weights_offloaded": 0, "discard_all": 0}
    gauge("vllm:engine_sleep_state", "Engine sleep state.", ("sleep_state", states))
    gauge("vllm:kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", gauges.kv_usage)
    counter("vllm:num_preemptions", "Cumulative number of preemption from the engine.", counters.preemptions)
    text = "Prefix cache queries, in terms of number of queried tokens."
    counter("vllm:prefix_cache_queries", text, counters.queries)
    counter("vllm:prefix_cache_hits", "Prefix cache hits, in terms of number of cached tokens.", counters.hits)
    counter("vllm:prompt_tokens", "Number of prefill tokens processed.", counters.prompt)
    sources = {
        "local_compute": counters.prompt_computed, "local_cache_hit": counters.prompt_cached, "external_kv_transfer": 0,
    }  # fmt: skip
    counter("vllm:prompt_tokens_by_source", "Number of prompt tokens by source.", ("source", sources))
    text = "Number of cached prompt tokens (local + external)."
    counter("vllm:prompt_tokens_cached", text, counters.prompt_cached)
    counter("vllm:generation_tokens", "Number of generation tokens processed.", counters.generated)
    text = "Count of successfully processed requests."
    counter("vllm:request_success", text, ("finished_reason", counters.finished))


def _histograms(counters: SimulatedCounters) -> dict[str, tuple[str, Histogram]]:
    return {
        "iteration_tokens_total": ("Histogram of number of tokens per engine_step.", counters.step_tokens),
        "time_to_first_token_seconds": ("Histogram of time to first token in seconds.", counters.ttft),
        "inter_token_latency_seconds": ("Histogram of inter-token latency in seconds.", counters.itl),
        "request_prefill_time_seconds": ("Histogram of time spent in PREFILL phase for request.", counters.prefill),
        "request_prefill_kv_computed_tokens": (
            "Histogram of new KV tokens computed during prefill.", counters.computed_lengths,
        ),
    }  # fmt: skip
