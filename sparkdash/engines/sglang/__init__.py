"""SGLang, 0.5: `sglang.launch_server`. Pure."""

import re
from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from types import MappingProxyType

from sparkdash.domain.container import ContainerSpec
from sparkdash.domain.memory import Term
from sparkdash.domain.profile import ApiProtocol, ArgValue, EngineKind, FixName, Profile
from sparkdash.domain.request import Task
from sparkdash.domain.weights import WeightFacts
from sparkdash.engines import argv, containers, logs, nodes
from sparkdash.engines.adapter import POOLING, CommandLine, Counting, EngineAdapter
from sparkdash.engines.argv import lookup, parse_share, parse_token_count, version_of
from sparkdash.engines.containers import LaunchContext
from sparkdash.engines.flag_table import FlagSource, FlagSyntax
from sparkdash.engines.logs import Phrase
from sparkdash.engines.memory_terms import Drafting, Facts, cache_term, loaded_terms, share_term
from sparkdash.engines.probes import MetricNames, Probes
from sparkdash.engines.proposal import SEQUENCES, SHARE, KnownImage, KvCachePlan, MemoryBudget, Proposal
from sparkdash.engines.rule import Hit, Rule, Severity, flag_path
from sparkdash.engines.start_stages import Lever
from sparkdash.units import GIB, MIB

# /metrics and cached tokens in the usage are off unless asked for; the gauges are fresher with a short interval.
DEFAULT_FLAGS = (("enable-metrics", True), ("enable-cache-report", True), ("decode-log-interval", 10))
# What is asked of it every second would fill its log with nothing else.
QUIET = "uvicorn-access-log-exclude-prefixes"
QUIET_SINCE = (0, 5, 8)  # PR #15513; its wheel has the flag, that of 0.5.7 has not

MMAP_OFF = "weight-loader-disable-mmap"

INIT_PORT = 20000
"""Port of the first meeting of the ranks, as in SGLang's own examples; used where no free port was chosen."""

PHRASES = (
    Phrase("weights", r"Load weight begin\. avail mem=", 0.0),
    Phrase(
        "weights",
        r"(?:Loading safetensors checkpoint shards|Multi-thread loading shards): +(?P<pct>\d+)% Completed"
        r" \| (?P<done>\d+)/(?P<total>\d+)",
    ),
    Phrase("weights", r"Load weight end\.(?: elapsed=(?P<took>[\d.]+) s)?", 1.0),
    Phrase("kv", r"KV Cache is allocated\. (?:dtype: \S+ )?#tokens: \d+|Memory pool end", 1.0),
    Phrase("graphs", r"Capturing batches \(bs=\d+[^)]*\)(?:: +(?P<pct>\d+)%)?"),
    Phrase("graphs", r"Capture .*begin", 0.0),
    Phrase("graphs", r"Capture .*end\b(?:\. (?:Time elapsed: |elapsed=)(?P<took>[\d.]+) s)?", 1.0),
    Phrase("warmup", r"Application startup complete"),  # uvicorn is up, SGLang's own warm-up request runs
    Phrase("ready", r"The server is fired up and ready to roll!", 1.0),
)

KV = re.compile(r"Using KV cache dtype: torch\.(\w+)|KV Cache is allocated\. dtype: torch\.(\w+)")

MEMORY_VARIABLES = {
    "SGLANG_DISAGG_STAGING_POOL_SIZE_MB": MIB,
    "SGLANG_DSV4_FP4_DEQUANT": None,  # FP4 experts become FP8
    "SGLANG_EMBEDDING_POOL_SIZE_MB": MIB,
    "SGLANG_FLASHINFER_WORKSPACE_SIZE": 1,
    "SGLANG_MM_FEATURE_CACHE_MB": MIB,
    "SGLANG_SYMM_MEM_PREALLOC_GB_SIZE": GIB,
    "MOONCAKE_GLOBAL_SEGMENT_SIZE": 1,
}
"""Variables that allocate memory beside the static share (SGLang's srt/environ.py, October 2026)."""
MEMORY_FLAGS = {"hicache-size": 10**9, "cpu-offload-gb": GIB}
"""Flags that allocate host memory (SGLang's server_args.py: HiCache counts in 10^9 bytes, for each rank)."""

_MUST_BE_ASKED = frozenset({"gemma3", "llama4", "step3_vl", "inkling"})
"""Models whose vision SGLang leaves out unless `--enable-multimodal` asks for it (its `mm_disabled_models`, 2026)."""


class Sglang(EngineAdapter):
    """Adapter of SGLang's `launch_server`."""

    kind = EngineKind.SGLANG
    title = "SGLang"
    # SGLang PR #18630.
    speaks_since: Mapping[ApiProtocol, tuple[int, ...] | None] = MappingProxyType({ApiProtocol.MESSAGES: (0, 5, 9)})
    program = ("python3", "-m", "sglang.launch_server")
    # Never /health: each call of it generates a token. The model list is there as soon as the HTTP server is.
    probes = Probes(alive="/v1/models", version="/server_info")
    # No death words: its scheduler's end takes the whole process tree with it.
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
        itl=("sglang:inter_token_latency_seconds",),
        copies=("tp_rank", "pp_rank", "moe_ep_rank", "pid"),
        started=(),
    )
    metric_prefix = "sglang:"
    phrases = PHRASES
    weights_line = re.compile(r"Load weight end\..*\bmem usage=([\d.]+) GB")
    causes = (
        logs.cause(
            "out_of_memory",
            r"Not enough memory\. Please try|Not enough GPU memory",
            "It found too little memory for its settings",
            "Change `mem-fraction-static` or lower `context-length` in the profile, or stop what else holds memory.",
        ),
    )
    cached_loaders = frozenset({"", "auto", "safetensors", "fastsafetensors"})
    parallel_flags = MappingProxyType({"tp": "tp-size", "pp": "pp-size", "dp": "dp-size", "ep": "ep-size"})
    runs_on_nodes = True
    flag_source = FlagSource(
        __file__,
        "SGLang",
        FlagSyntax(abbreviates=True),
        own_images=r"(docker\.io/)?lmsysorg/sglang[:@]|nvcr\.io/nvidia/sglang[:@]",
        version_in_tag=r"sglang:v(\d+\.\d+[\w.]*)",
    )
    command_line = CommandLine(
        model=("model-path",),
        names="served-model-name",
        drafter="speculative-draft-model-path",
        short=MappingProxyType({"model": "model-path", "tp": "tp-size", "pp": "pp-size"}),
        resolves_long=True,
        ours=frozenset({("enable-metrics",), ("enable-cache-report",), ("decode-log-interval", "10")}),
    )
    owned_by = "sglang"
    known_image = KnownImage(
        "nvcr.io/nvidia/sglang:26.02-py3", None, "NVIDIA's build, as in its playbook: dgx-spark-playbooks#68"
    )
    takes_vllm_keys = True
    usage_on_request = True
    keeps_responses = True
    tool_flag = "tool-call-parser"
    memory_variables: Mapping[str, int | None] = MappingProxyType(MEMORY_VARIABLES)
    memory_flags: Mapping[str, int] = MappingProxyType(MEMORY_FLAGS)
    share_flags = ("mem-fraction-static",)

    def container(self, profile: Profile, launch: LaunchContext) -> ContainerSpec:
        model = argv.target_model(profile, pinnable=True)
        words = [
            *containers.program(profile, self.program),
            *("--model-path", model.ref, "--host", argv.HOST, "--port", str(launch.port)),
            *("--served-model-name", profile.name),
            *(("--revision", model.revision) if model.revision else ()),
            *argv.flag_words(argv.overlay_args(_defaults(profile), profile.args), profile.models, self.lists),
        ]
        if profile.nodes > 1:
            return _on_nodes(profile, launch, words)
        return containers.build_container(profile, launch, words, shm_size=containers.SHM_SIZE)

    def context(self, profile: Profile) -> int | None:
        return parse_token_count(lookup(profile.args, "context-length")) or profile.context

    def speculation(self, profile: Profile) -> str | None:
        """Describe the speculation; k counts draft steps."""
        method = lookup(profile.args, "speculative-algorithm")
        depth = lookup(profile.args, "speculative-num-steps")
        if not method:
            return None
        return f"{str(method).lower()} k={depth}" if depth else str(method).lower()

    def rules(self) -> tuple[Rule, ...]:
        return RULES

    def levers(self) -> tuple[Lever, ...]:
        return LEVERS

    def kv_dtype(self, lines: Sequence[str]) -> str | None:
        hit = logs.first_match(lines, KV)
        return hit and (hit[1] or hit[2])

    def memory_beside(self, profile: Profile) -> Iterator[tuple[str, int | None]]:
        """Yield HiCache's host pool too: without a size it is a multiple of the KV pool (--hicache-ratio)."""
        yield from super().memory_beside(profile)
        if lookup(profile.args, "enable-hierarchical-cache") is True and not lookup(profile.args, "hicache-size"):
            yield "--enable-hierarchical-cache", None

    def memory_terms(self, profile: Profile, facts: Facts, box_bytes: int | None) -> Iterator[Term]:
        """Terms of SGLang: mem_fraction_static holds weights and KV pool, max_total_tokens caps it (server_args.py).

        Its share is of what is free when it starts: of the whole box, it is the upper bound.
        """
        held = parse_token_count(lookup(profile.args, "max-total-tokens"))
        if held is not None:
            yield from loaded_terms(profile, facts, _drafting(profile))
            yield cache_term(profile, facts, held, "max-total-tokens")
            return
        flag = "mem-fraction-static"
        given = lookup(profile.args, flag)
        if given is None:
            yield Term(name="utilization", source=f"--{flag} is not given, and SGLang then chooses it by itself")
        else:
            yield share_term(flag, parse_share(given), box_bytes)

    def sizes_by_free_memory(self, profile: Profile) -> bool:
        return True

    def propose_flags(
        self, proposal: Proposal, facts: WeightFacts, cache: KvCachePlan | None, box: MemoryBudget
    ) -> None:
        if cache is None:
            why = "SGLang takes this share for weights and cache: the configuration does not tell a token's KV size."
            proposal.arg("mem-fraction-static", SHARE - 0.05, why)
        else:
            proposal.arg("context-length", cache.context, cache.why)
            proposal.arg("max-total-tokens", cache.held, cache.size_reason(facts))
            share = min(SHARE, ceil(100 * (facts.bytes.total + cache.bytes) / max(1, box.total - box.reserve)) / 100)
            why = "Weights and that cache as a share of what is free at the start, from which SGLang counts."
            proposal.arg("mem-fraction-static", share, why)
        proposal.arg("max-running-requests", SEQUENCES, "As NVIDIA's recipes for a Spark.")
        proposal.arg(MMAP_OFF, True, "A Spark copies slowly out of mapped files.")

    def tasks(self, profile: Profile, target: WeightFacts | None) -> frozenset[Task] | None:
        return POOLING if lookup(profile.args, "is-embedding") else super().tasks(profile, target)

    def reads_images(self, profile: Profile, target: WeightFacts | None) -> bool | None:
        if target is None:
            return None
        asked = lookup(profile.args, "enable-multimodal")
        return target.sees and bool(asked if asked is not None else target.architecture not in _MUST_BE_ASKED)

    def needs_fixes(self, version: tuple[int, ...] | None, *, harmony: bool) -> frozenset[FixName]:
        """SGLang hands the role `developer` to templates that drop it without a word (sglang#40082)."""
        return frozenset({FixName.RESPONSES_TOOL_TYPES if harmony else FixName.DEVELOPER_AS_SYSTEM})

    def count_request(self, model: str, content: str) -> Counting | None:
        return Counting("/tokenize", {"model": model, "prompt": content})

    def tokenize_request(self, model: str, text: str) -> Counting | None:
        body = {"model": model, "prompt": text, "add_special_tokens": False}
        return Counting("/tokenize", body)

    def recognise(self, words: Sequence[str], name: str, image: str) -> tuple[Sequence[str], Sequence[str]] | None:
        if words[1:3] == ["-m", "sglang.launch_server"]:
            return [] if words[0] == "python3" else words[:3], words[3:]
        if name == "sglang" and words[1:2] == ["serve"]:
            return words[:2], words[2:]
        return (["sglang", "serve"], words[1:]) if words[:1] == ["serve"] and "sglang" in image else None


def _on_nodes(profile: Profile, launch: LaunchContext, command: Sequence[str]) -> ContainerSpec:
    nodes.refuse_unfit(profile, launch)
    head = launch.nodes[0].address
    address = f"[{head}]" if ":" in head else head
    shared = ["--nnodes", str(len(launch.nodes)), "--dist-init-addr", f"{address}:{launch.master_port or INIT_PORT}"]
    ranks = [[*command, *shared, "--node-rank", str(rank)] for rank in range(len(launch.nodes))]
    # Without it ranks on two Sparks hung in shm_broadcast (beastllama/GLM-5.3-Flash-DFlash2-SGLang-2x-DGX-Spark).
    return nodes.build_containers(profile, launch, ranks, [{"SGLANG_HOST_IP": node.address} for node in launch.nodes])


def _defaults(profile: Profile) -> tuple[tuple[str, ArgValue], ...]:
    quiet = (version_of(profile.engine_version) or ()) >= QUIET_SINCE
    return (*DEFAULT_FLAGS, *(((QUIET, ["/metrics", "/v1/models"]),) if quiet else ()))


def _drafting(profile: Profile) -> Drafting:
    """Drafting of SGLang. Without a draft model, NEXTN and EAGLE draft with the target's own MTP layers."""
    method = str(lookup(profile.args, "speculative-algorithm") or "").lower()
    model = lookup(profile.args, "speculative-draft-model-path", "speculative-draft-model")
    own = method in ("nextn", "eagle") and not model
    return Drafting("mtp" if own else method, str(model) if model else None)


def _metrics_off(profile: Profile) -> Iterator[Hit]:
    if lookup(profile.args, "enable-metrics") is False:
        path = flag_path(profile, "enable-metrics")
        yield Hit(path, "leaves the dashboard without rates", "Remove it: sparkdash passes --enable-metrics.")


def _mapped(profile: Profile) -> Iterator[Hit]:
    if profile.gpu and not lookup(profile.args, MMAP_OFF):
        text = "maps the weights' files, out of which a Spark copies 0.04 to 0.25 GB/s"
        yield Hit(flag_path(profile, MMAP_OFF) or ("args",), text, f"Write `{MMAP_OFF}: true` under args.")


RULES = (
    Rule(
        "sglang-mmap",
        Severity.WARNING,
        "weights that are copied out of mapped files",
        "126 GB in 58 minutes: Qwen3.8-Flash-Next-Single-DGX-Spark#30; 258 s to 32 s on another box: sglang PR#7469",
        _mapped,
    ),
    Rule(
        "sglang-metrics",
        Severity.WARNING,
        "SGLang's /metrics is off unless asked for",
        "SGLang's server arguments: --enable-metrics",
        _metrics_off,
    ),
)

LEVERS = (
    Lever(
        "weights",
        f"Write `{MMAP_OFF}: true` under args: it reads the files, which are mapped now.",
        "not a Spark, sglang PR#7469",
        258.0,
        32.0,
        lambda profile, _start: any(_mapped(profile)),
    ),
)

ENGINE = Sglang()
