"""TensorRT-LLM's trtllm-serve, 1.0 to 2026's main. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from types import MappingProxyType

from sparkdash.domain.container import ContainerSpec
from sparkdash.domain.memory import Term
from sparkdash.domain.profile import ApiProtocol, EngineKind, FixName, Profile
from sparkdash.engines import argv, containers, logs
from sparkdash.engines.adapter import CommandLine, EngineAdapter
from sparkdash.engines.argv import lookup, parse_share, parse_token_count
from sparkdash.engines.containers import LaunchContext
from sparkdash.engines.flag_table import FlagSource, FlagSyntax
from sparkdash.engines.logs import Phrase
from sparkdash.engines.memory_terms import Facts, weights_term
from sparkdash.engines.probes import MetricNames, Probes
from sparkdash.errors import ProfileError

SHARE = 0.9
"""Default of free_gpu_memory_fraction: TensorRT-LLM's KvCacheConfig."""

OPTION_FILES = ("extra-llm-api-options", "config")
"""Flags that name a YAML file of further options. Metrics need `return_perf_metrics: true` in it."""

PHRASES = (
    Phrase("weights", r"Use [\d.]+ GB for model weights", 0.0),
    Phrase("weights", r"Loading safetensors weights in parallel: +(?P<pct>\d+)%"),
    Phrase("weights", r"Loading weights: +(?P<pct>\d+)%\|[^|]*\| (?P<done>\d+)/(?P<total>\d+)"),
    Phrase("weights", r"Model init total -- [\d.]+s", 1.0),
    Phrase("kv", r"Allocated [\d.]+ GiB for max tokens in paged KV cache \(\d+\)"),  # twice: the first only probes
    Phrase("compile", r"Autotuning process starts", 0.0),
    Phrase("compile", r"Autotuning process ends", 1.0),
    Phrase("graphs", r"Creating CUDA graph instances for \d+ batch sizes", 0.0),
    Phrase("graphs", r"Run generation only CUDA graph warmup for batch size=\d+"),
    Phrase("ready", r"Application startup complete", 1.0),
)


class TrtLlm(EngineAdapter):
    """Adapter of `trtllm-serve`. Its file of further options, with the speculation, is not read."""

    kind = EngineKind.TRTLLM
    title = "TensorRT-LLM"
    # PR #18289 was merged after the last release that is known.
    speaks_since: Mapping[ApiProtocol, tuple[int, ...] | None] = MappingProxyType({ApiProtocol.MESSAGES: None})
    program = ("trtllm-serve",)
    probes = Probes(alive="/health", version="/version")
    # No death words: it ends itself by a signal, and says nothing of it.
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
        copies=("pid",),  # its gauges carry it, and those of an ended process stay
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
    metric_prefix = "trtllm_"
    phrases = PHRASES
    causes = (
        logs.cause(
            "out_of_memory",
            r"Cuda Runtime \(out of memory\)|Executor creation failed due to insufficient GPU memory",
            "It found too little memory for its settings",
            "Lower `kv_cache_free_gpu_memory_fraction` or `max_seq_len` in the profile, or stop what else "
            "holds memory.",
        ),
    )
    flag_source = FlagSource(
        __file__,
        "TensorRT-LLM",
        FlagSyntax(is_literal=True, has_candidates=True),
        own_images=r"nvcr\.io/nvidia/tensorrt-llm/release[:@]",
        version_in_tag=r"tensorrt-llm/release:(\d+\.\d+\.\d+)",
    )
    command_line = CommandLine(model=("model",))
    owned_by = "tensorrt_llm"
    takes_vllm_keys = True
    usage_on_request = True
    share_flags = ("kv-cache-free-gpu-memory-fraction", "free-gpu-memory-fraction")

    def container(self, profile: Profile, launch: LaunchContext) -> ContainerSpec:
        """Build the container of trtllm-serve. A file of further options is mounted at its own path."""
        if profile.nodes > 1:
            raise ProfileError(
                f"Profile {profile.name} wants {profile.nodes} nodes, where TensorRT-LLM is started by mpirun.",
                code="nodes_unsupported",
                hint="mpirun needs an ssh server in each container, which sparkdash does not set up. "
                "Use vLLM, SGLang or TensorFold.",
            )
        model = argv.target_model(profile)
        words = [
            *containers.program(profile, self.program),
            *(model.ref, "--host", argv.HOST, "--port", str(launch.port)),
            *argv.flag_words(profile.args, profile.models),
        ]
        options = lookup(profile.args, *OPTION_FILES)
        files = [options] if isinstance(options, str) and options.startswith("/") else []
        return containers.build_container(profile, launch, words, shm_size=containers.SHM_SIZE, files=files)

    def context(self, profile: Profile) -> int | None:
        return parse_token_count(lookup(profile.args, "max-seq-len")) or profile.context

    def memory_terms(self, profile: Profile, facts: Facts, box_bytes: int | None) -> Iterator[Term]:
        """The KV cache takes a share of what the weights leave free (free_gpu_memory_fraction)."""
        weights = weights_term(profile, facts, mtp=True)
        yield weights
        flag = "kv-cache-free-gpu-memory-fraction"
        given = lookup(profile.args, flag)
        part = SHARE if given is None else parse_share(given)
        if lookup(profile.args, *OPTION_FILES) is not None:
            yield Term(name="kv", source="decided in the file of further options, which is not read")
        elif part is None or box_bytes is None or weights.bytes is None:
            yield Term(name="kv", source=f"{flag} is a share of what the weights leave, and that is not known")
        else:
            size = ceil(max(0, box_bytes - weights.bytes) * part)
            yield Term(name="kv", bytes=size, source=f"{flag} {part:g} of what the weights leave, at most")

    def sizes_by_free_memory(self, profile: Profile) -> bool:
        return True

    def needs_fixes(self, version: tuple[int, ...] | None, *, harmony: bool) -> frozenset[FixName]:
        """No version is known to take what Claude Code sends since 2026."""
        return frozenset({FixName.MESSAGES_SYSTEM_TURNS, FixName.MESSAGES_NEW_KEYS, FixName.RESPONSES_CLIENT_METADATA})

    def recognise(self, words: Sequence[str], name: str, image: str) -> tuple[Sequence[str], Sequence[str]] | None:
        if name != "trtllm-serve":
            return None
        return [] if words[0] == name else words[:1], words[2 if words[1:2] == ["serve"] else 1 :]


ENGINE = TrtLlm()
