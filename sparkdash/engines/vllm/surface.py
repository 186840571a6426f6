"""Surface of a vLLM server: metric names, start-up lines, speculation settings. Pure."""

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from sparkdash.domain.profile import Profile
from sparkdash.engines.adapter import Counting, EngineAdapter
from sparkdash.engines.argv import lookup, parse_object, parse_token_count
from sparkdash.engines.logs import Phrase
from sparkdash.engines.probes import MetricNames, Probes

# EngineDeadError of V1; AsyncEngineDeadError and MQEngineDeadError of V0. The API server answers with them for up to
# two seconds, then it exits.
DEATH_WORDS: tuple[bytes, ...] = (
    b"EngineCore encountered an issue",
    b"EngineDeadError",
    b"Background loop has errored already",
    b"Engine loop is not running",
)

METRICS = MetricNames(
    path="/metrics",
    generated=("vllm:generation_tokens_total",),
    prefilled=("vllm:prompt_tokens_by_source_total",),
    prefilled_label=("source", "local_compute"),
    prompted=("vllm:prompt_tokens_total",),
    timed_prompt=("vllm:request_prefill_kv_computed_tokens_sum",),
    prompt_seconds=("vllm:request_prefill_time_seconds_sum",),
    prefix_hits=("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"),
    prefix_queries=("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"),
    kv_used=("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
    kv_info=("vllm:cache_config_info",),
    running=("vllm:num_requests_running",),
    waiting=("vllm:num_requests_waiting",),
    deferred=("vllm:num_requests_waiting_by_reason",),
    deferred_label=("reason", "deferred"),
    awake=("vllm:engine_sleep_state",),
    awake_label=("sleep_state", "awake"),
    # Not the prefix cache's queries: before 0.28 a request that is never scheduled counts again at each attempt
    # (vllm #43736). Not request_success_total: it counts aborts too, and every other end is a step.
    moving=("vllm:iteration_tokens_total_count",),
    drafts=("vllm:spec_decode_num_drafts_total",),
    draft_tokens=("vllm:spec_decode_num_draft_tokens_total",),
    accepted=("vllm:spec_decode_num_accepted_tokens_total",),
    accepted_at=("vllm:spec_decode_num_accepted_tokens_per_pos_total",),
    ttft=("vllm:time_to_first_token_seconds",),
    itl=("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"),
    preemptions=("vllm:num_preemptions_total",),
)

# A drafter is loaded in a second pass: the fraction starts anew and the line says why.
PHRASES = (
    Phrase("weights", r"Starting to load model ", 0.0),
    Phrase("download", r"Time spent downloading weights for \S+: (?P<took>[\d.]+) seconds", 1.0),
    Phrase("weights", r"Prefetching checkpoint files: +(?P<pct>\d+)%"),
    Phrase(
        "weights",
        r"(?:Loading safetensors checkpoint shards|Loading pt checkpoint shards|Multi-thread loading shards"
        r"|Loading safetensors using [^:]+): +(?P<pct>\d+)% Completed \| (?P<done>\d+)/(?P<total>\d+)",
    ),
    Phrase("weights", r"Loading weights took (?P<took>[\d.]+) seconds", 1.0),
    Phrase("weights", r"Loading drafter model\.\.\.", 0.0),
    Phrase("weights", r"Model loading took [\d.]+ GiB(?: memory)? and (?P<took>[\d.]+) seconds", 1.0),
    Phrase("compile", r"Warming up model for the compilation|Dynamo bytecode transform time: [\d.]+ s"),
    Phrase("compile", r"Compiling a graph for compile range .* takes [\d.]+ s"),
    Phrase("compile", r"Directly load (?:the compiled graph|AOT compilation)|saved AOT compiled function"),
    Phrase("compile", r"torch\.compile(?: and initial profiling run)? (?:takes|took) (?P<took>[\d.]+) s in total", 1.0),
    Phrase("kv", r"Initial profiling/warmup run took (?P<took>[\d.]+) s"),
    Phrase("kv", r"Available KV cache memory: [\d.]+ GiB"),
    Phrase("kv", r"(?:GPU|CPU|GPU \+ host) KV cache size: [\d,]+ tokens", 1.0),
    Phrase("graphs", r"Capturing CUDA graphs \([^)]*\): +(?P<pct>\d+)%"),
    Phrase("kernels", r"\[Auto[Tt]uner\]: (?:Autotuning process starts|Tuning )|DeepG(?:emm|EMM)\S* warmup"),
    Phrase("kernels", r"\[Autotuner\]: Autotuning process ends", 1.0),
    Phrase("graphs", r"Graph capturing finished in (?P<took>\d+) secs, took [\d.]+ GiB", 1.0),
    Phrase("warmup", r"init engine \(profile, create kv cache, warmup model\) took [\d.]+ s", 1.0),
    Phrase("http", r"Starting vLLM (?:API server \d+|server) on http\S+"),
    Phrase("ready", r"Application startup complete\.", 1.0),
)


class VllmSurface(EngineAdapter):
    """Base of the adapters of vLLM (0.11 to 0.33) and of the simulated engine, which imitates it."""

    probes = Probes(alive="/health", version="/version")
    death_words = DEATH_WORDS
    metrics = METRICS
    phrases: Sequence[Phrase] = PHRASES
    # Between the size of the KV cache and the graphs it warms its kernels up without a line.
    follows: Mapping[str, str] = MappingProxyType({"kv": "kernels"})
    compiled_line = re.compile(r"(?P<cached>Directly load )|Compiling a graph for|saved AOT compiled function")
    weights_line = re.compile(r"Model loading took ([\d.]+) GiB")
    takes_vllm_keys = True
    usage_on_request = True

    def context(self, profile: Profile) -> int | None:
        return parse_token_count(lookup(profile.args, "max-model-len")) or profile.context

    def speculation(self, profile: Profile) -> str | None:
        """Describe `--speculative-config`, or since 0.22 `--spec-method` and `--spec-tokens`, as "eagle3 k=1"."""
        config = parse_object(lookup(profile.args, "speculative-config")) or {}
        method = config.get("method") or lookup(profile.args, "spec-method")
        depth = config.get("num_speculative_tokens") or lookup(profile.args, "spec-tokens")
        if not method:
            return None
        return f"{method} k={depth}" if depth else str(method)

    def count_request(self, model: str, content: str) -> Counting | None:
        body = {"model": model, "messages": [{"role": "user", "content": content}]}
        return Counting("/tokenize", body)

    def tokenize_request(self, model: str, text: str) -> Counting | None:
        return Counting("/tokenize", {"model": model, "prompt": text, "add_special_tokens": False})
