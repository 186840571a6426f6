"""Dialect of SGLang, 0.5.

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from sparkdash.domain import list_args
from sparkdash.domain.container import ContainerSpec
from sparkdash.domain.engine import Failure, LoadProgress
from sparkdash.domain.profile import ApiProtocol, ArgValue, EngineKind, Profile
from sparkdash.engines import argv, containers, logs, nodes
from sparkdash.engines.adapter import HelpCommand, LaunchContext, MetricNames, Probes
from sparkdash.engines.argv import version_of
from sparkdash.engines.logs import phrase

DEFAULT_PROGRAM = ("python3", "-m", "sglang.launch_server")

# /metrics and cached tokens in the usage are off unless asked for; the gauges are fresher with a short interval.
DEFAULT_FLAGS = (("enable-metrics", True), ("enable-cache-report", True), ("decode-log-interval", 10))
# What is asked of it every second would fill its log with nothing else.
QUIET = "uvicorn-access-log-exclude-prefixes"
QUIET_SINCE = (0, 5, 8)  # PR #15513; its wheel has the flag, that of 0.5.7 has not

INIT_PORT = 20000
"""Port of the first meeting of the ranks, as in SGLang's own examples; used where no free port was chosen."""

PHRASES = (
    phrase("weights", r"Load weight begin\. avail mem=", 0.0),
    phrase(
        "weights",
        r"(?:Loading safetensors checkpoint shards|Multi-thread loading shards): +(?P<pct>\d+)% Completed"
        r" \| (?P<done>\d+)/(?P<total>\d+)",
    ),
    phrase("weights", r"Load weight end\.", 1.0),
    phrase("kv", r"KV Cache is allocated\. (?:dtype: \S+ )?#tokens: \d+|Memory pool end", 1.0),
    phrase("graphs", r"Capturing batches \(bs=\d+[^)]*\)(?:: +(?P<pct>\d+)%)?"),
    phrase("graphs", r"Capture .*begin", 0.0),
    phrase("graphs", r"Capture .*end\b", 1.0),
    phrase("warmup", r"Application startup complete"),  # uvicorn is up, SGLang's own warm-up request runs
    phrase("ready", r"The server is fired up and ready to roll!", 1.0),
)

KV = re.compile(r"Using KV cache dtype: torch\.(\w+)|KV Cache is allocated\. dtype: torch\.(\w+)")

CAUSES = (
    logs.cause(
        "out_of_memory",
        r"Not enough memory\. Please try|Not enough GPU memory",
        "It found too little memory for its settings",
        "Change `mem-fraction-static` or lower `context-length` in the profile, or stop what else holds memory.",
    ),
)


class Sglang:
    """Adapter of SGLang's `launch_server`."""

    kind = EngineKind.SGLANG
    managed = True
    # SGLang PR #18630.
    speaks_since: Mapping[ApiProtocol, tuple[int, ...] | None] = MappingProxyType({ApiProtocol.MESSAGES: (0, 5, 9)})
    # Never /health: each call of it generates a token. The model list is there as soon as the HTTP server is.
    probes = Probes(alive="/v1/models", version="/server_info")
    death_words: tuple[bytes, ...] = ()  # its scheduler's end takes the whole process tree with it
    metrics = MetricNames(
        path="/metrics",
        generated=("sglang:realtime_tokens_total",),
        generated_label=("mode", "decode"),
        prefilled=("sglang:realtime_tokens_total",),
        prefilled_label=("mode", "prefill_compute"),
        decode_gauge=("sglang:gen_throughput",),
        # Since 0.5.18, since 0.5.8 (counts what was retracted again), and before: at a request's end.
        prefix_hits=(
            "sglang:prefill_effective_tokens_total",
            "sglang:realtime_tokens_total",
            "sglang:cached_tokens_total",
        ),
        prefix_hits_label=("mode", ("device_hit", "host_hit", "storage_hit", "prefill_cache")),
        prefix_misses=("sglang:prefill_effective_tokens_total", "sglang:realtime_tokens_total"),
        prefix_misses_label=("mode", ("input", "prefill_compute")),
        prefix_queries=("sglang:prompt_tokens_total",),
        kv_used=("sglang:token_usage",),
        kv_capacity=("sglang:max_total_num_tokens",),
        running=("sglang:num_running_reqs",),
        waiting=("sglang:num_queue_reqs",),
        deferred=("sglang:num_grammar_queue_reqs",),
        # The tokens in use stand in for the live counter before 0.5.8, and for `token_usage`, which leaves Mamba out.
        moving=(
            "sglang:generation_tokens_total",
            "sglang:prompt_tokens_total",
            "sglang:num_used_tokens",
            "sglang:mamba_usage",
            "sglang:cuda_graph_passes_total",
            "sglang:forward_execution_seconds_total",
            "sglang:spec_verify_calls_total",
        ),
        acceptance_gauge=("sglang:spec_accept_rate",),
        acceptance_length_gauge=("sglang:spec_accept_length",),
        ttft=("sglang:time_to_first_token_seconds",),
        started=(),
    )

    def container(self, profile: Profile, launch: LaunchContext) -> ContainerSpec:
        """Build the container that runs SGLang."""
        model = argv.target_model(profile, pinnable=True)
        words = [
            *containers.program(profile, DEFAULT_PROGRAM),
            *("--model-path", model.ref, "--host", argv.HOST, "--port", str(launch.port)),
            *("--served-model-name", profile.name),
            *(("--revision", model.revision) if model.revision else ()),
            *argv.flag_words(
                argv.overlay_args(_defaults(profile, launch), profile.args),
                profile.models,
                list_args.list_args_of(self.kind),
            ),
        ]
        if profile.nodes > 1:
            return _on_nodes(profile, launch, words)
        return containers.build_container(profile, launch, words, shm_size=containers.SHM_SIZE)

    def help(self, profile: Profile) -> HelpCommand | None:
        """Build the command that lists SGLang's flags; None for another program."""
        words = containers.program(profile, DEFAULT_PROGRAM)
        return (
            HelpCommand((*words, "--help"), quick=False) if containers.is_own_program(words, DEFAULT_PROGRAM) else None
        )

    def served_names(self, profile: Profile) -> tuple[str, ...]:
        """List the names for the profile; SGLang is given one and accepts any."""
        return argv.served_names(profile)

    def context(self, profile: Profile) -> int | None:
        """Configured context in tokens, from the profile."""
        return argv.parse_token_count(argv.lookup(profile.args, "context-length")) or profile.context

    def speculation(self, profile: Profile) -> str | None:
        """Describe the speculation; k counts draft steps."""
        method = argv.lookup(profile.args, "speculative-algorithm")
        depth = argv.lookup(profile.args, "speculative-num-steps")
        if not method:
            return None
        return f"{str(method).lower()} k={depth}" if depth else str(method).lower()

    def read_log(self, line: str) -> LoadProgress | None:
        """Read the progress in one line of the start-up log."""
        return logs.match_progress(line, PHRASES)

    def kv_dtype(self, lines: Sequence[str]) -> str | None:
        """Read the KV cache's type from the start-up log."""
        hit = logs.first_match(lines, KV)
        return hit and (hit[1] or hit[2])

    def classify(self, lines: Sequence[str], exit_code: int | None) -> Failure:
        """Classify a failed start, this engine's own causes first."""
        return logs.classify(lines, exit_code, CAUSES)


def _on_nodes(profile: Profile, launch: LaunchContext, command: Sequence[str]) -> ContainerSpec:
    """Build the containers of all nodes. Ranks above 0 answer nothing but /health on their own box."""
    nodes.refuse_unfit(profile, launch)
    head = launch.nodes[0].address
    address = f"[{head}]" if ":" in head else head
    shared = ["--nnodes", str(len(launch.nodes)), "--dist-init-addr", f"{address}:{launch.master_port or INIT_PORT}"]
    ranks = [[*command, *shared, "--node-rank", str(rank)] for rank in range(len(launch.nodes))]
    # Without it ranks on two Sparks hung in shm_broadcast (beastllama/GLM-5.3-Flash-DFlash2-SGLang-2x-DGX-Spark).
    return nodes.build_containers(profile, launch, ranks, [{"SGLANG_HOST_IP": node.address} for node in launch.nodes])


def _defaults(profile: Profile, launch: LaunchContext) -> tuple[tuple[str, ArgValue], ...]:
    if launch.flags is None:
        quiet = (version_of(profile.engine_version) or ()) >= QUIET_SINCE
    else:
        quiet = launch.flags.has(QUIET)
    return (*DEFAULT_FLAGS, *(((QUIET, ["/metrics", "/v1/models"]),) if quiet else ()))
