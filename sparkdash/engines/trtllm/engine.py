"""Dialect of TensorRT-LLM's trtllm-serve, 1.0 to 2026's main.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from sparkdash.domain.container import ContainerSpec
from sparkdash.domain.engine import Failure, LoadProgress
from sparkdash.domain.profile import ApiProtocol, EngineKind, Profile
from sparkdash.engines import argv, containers, logs
from sparkdash.engines.adapter import HelpCommand, LaunchContext, MetricNames, Probes
from sparkdash.engines.logs import phrase
from sparkdash.errors import ProfileError

DEFAULT_PROGRAM = ("trtllm-serve",)

OPTION_FILES = ("extra-llm-api-options", "config")
"""Flags that name a YAML file of further options. Metrics need `return_perf_metrics: true` in it."""

PHRASES = (
    phrase("weights", r"Use [\d.]+ GB for model weights", 0.0),
    phrase("weights", r"Loading safetensors weights in parallel: +(?P<pct>\d+)%"),
    phrase("weights", r"Loading weights: +(?P<pct>\d+)%\|[^|]*\| (?P<done>\d+)/(?P<total>\d+)"),
    phrase("weights", r"Model init total -- [\d.]+s", 1.0),
    phrase("kv", r"Allocated [\d.]+ GiB for max tokens in paged KV cache \(\d+\)"),  # twice: the first only probes
    phrase("compile", r"Autotuning process starts", 0.0),
    phrase("compile", r"Autotuning process ends", 1.0),
    phrase("graphs", r"Creating CUDA graph instances for \d+ batch sizes", 0.0),
    phrase("graphs", r"Run generation only CUDA graph warmup for batch size=\d+"),
    phrase("ready", r"Application startup complete", 1.0),
)

CAUSES = (
    logs.cause(
        "out_of_memory",
        r"Cuda Runtime \(out of memory\)|Executor creation failed due to insufficient GPU memory",
        "It found too little memory for its settings",
        "Lower `kv_cache_free_gpu_memory_fraction` or `max_seq_len` in the profile, or stop what else holds memory.",
    ),
)


class TrtLlm:
    """Adapter of TensorRT-LLM's `trtllm-serve`."""

    kind = EngineKind.TRTLLM
    managed = True
    # PR #18289 was merged after the last release that is known.
    speaks_since: Mapping[ApiProtocol, tuple[int, ...] | None] = MappingProxyType({ApiProtocol.MESSAGES: None})
    probes = Probes(alive="/health", version="/version")
    death_words: tuple[bytes, ...] = ()  # it ends itself by a signal, and says nothing of it
    # Each read consumes the JSON of /metrics, so the Prometheus exposition is used. Its counters move at request end.
    # Unprefixed names are those of 1.1 and 1.2.
    metrics = MetricNames(
        path="/prometheus/metrics",
        generated=("trtllm_generation_tokens_total",),
        prompted=("trtllm_prompt_tokens_total",),
        prefix_hits=("trtllm_prompt_cached_tokens_total",),
        prefix_queries=("trtllm_prompt_tokens_total",),
        kv_used=("trtllm_kv_cache_utilization",),
        running=("trtllm_num_requests_running",),
        waiting=("trtllm_num_requests_waiting",),
        moving=("trtllm_num_requests_completed_total", "trtllm_request_success_total", "request_success_total"),
        is_live=False,
        # By position first: the other two lose the iterations between two finished requests.
        draft_tokens=("trtllm_spec_decode_drafted_tokens_total", "trtllm_spec_decode_num_draft_tokens_total"),
        accepted=("trtllm_spec_decode_accepted_tokens_total", "trtllm_spec_decode_num_accepted_tokens_total"),
        accepted_at=("trtllm_spec_decode_accepted_tokens_total",),
        drafted_at=("trtllm_spec_decode_drafted_tokens_total",),
        position_label="token_position",
        acceptance_length_gauge=("trtllm_spec_decode_acceptance_length",),
        ttft=("trtllm_time_to_first_token_seconds", "time_to_first_token_seconds"),
        started=(),
    )

    def container(self, profile: Profile, launch: LaunchContext) -> ContainerSpec:
        """Build the container of trtllm-serve. A file of further options is mounted at its own path."""
        if profile.nodes > 1:
            raise ProfileError(
                f"Profile {profile.name} wants {profile.nodes} nodes, where TensorRT-LLM is started by mpirun.",
                code="nodes_unsupported",
                hint="mpirun needs an ssh server in each container, which sparkdash does not set up. "
                "Use vLLM or SGLang.",
            )
        model = argv.target_model(profile)
        words = [
            *containers.program(profile, DEFAULT_PROGRAM),
            *(model.ref, "--host", argv.HOST, "--port", str(launch.port)),
            *argv.flag_words(profile.args, profile.models),
        ]
        options = argv.lookup(profile.args, *OPTION_FILES)
        files = [options] if isinstance(options, str) and options.startswith("/") else []
        return containers.build_container(profile, launch, words, shm_size=containers.SHM_SIZE, files=files)

    def help(self, profile: Profile) -> HelpCommand | None:
        """Build the command that lists TensorRT-LLM's flags; None for another program."""
        words = containers.program(profile, DEFAULT_PROGRAM)
        own = containers.is_own_program(words[:1], DEFAULT_PROGRAM) and words[1:] in ([], ["serve"])
        return HelpCommand((words[0], "serve", "--help"), quick=False) if own else None

    def served_names(self, profile: Profile) -> tuple[str, ...]:
        """List the profile's names; trtllm-serve accepts any."""
        return argv.served_names(profile)

    def context(self, profile: Profile) -> int | None:
        """Configured context in tokens, from the profile."""
        return argv.parse_token_count(argv.lookup(profile.args, "max-seq-len")) or profile.context

    def speculation(self, profile: Profile) -> str | None:  # noqa: ARG002 - the contract's signature
        """Return None: speculation is set in the file of further options, which is not read here."""
        return None

    def read_log(self, line: str) -> LoadProgress | None:
        """Read the progress in one line of the start-up log."""
        return logs.match_progress(line, PHRASES)

    def kv_dtype(self, lines: Sequence[str]) -> str | None:  # noqa: ARG002 - see EngineAdapter
        """Return None: no line of the log names the type."""
        return None

    def classify(self, lines: Sequence[str], exit_code: int | None) -> Failure:
        """Classify a failed start, this engine's own causes first."""
        return logs.classify(lines, exit_code, CAUSES)
