"""llama.cpp's llama-server, builds of 2025 and 2026. Pure."""

import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from sparkdash.domain.container import ContainerSpec
from sparkdash.domain.memory import Term
from sparkdash.domain.profile import ArgValue, EngineKind, FixName, Profile
from sparkdash.domain.request import Task
from sparkdash.domain.weights import WeightFacts
from sparkdash.engines import argv, containers, logs
from sparkdash.engines import memory_terms as terms
from sparkdash.engines.adapter import POOLING, CommandLine, Counting, EngineAdapter
from sparkdash.engines.argv import ListArgs, lookup, parse_token_count
from sparkdash.engines.containers import LaunchContext
from sparkdash.engines.flag_table import FlagSource, FlagSyntax
from sparkdash.engines.logs import Phrase
from sparkdash.engines.memory_terms import Facts
from sparkdash.engines.probes import MetricNames, Probes
from sparkdash.engines.proposal import SEQUENCES, KvCachePlan, MemoryBudget, Proposal
from sparkdash.engines.rule import Hit, Rule, Severity, flag_path
from sparkdash.engines.start_stages import Lever
from sparkdash.units import MIB, tokens

# /metrics is off unless asked for.
DEFAULT_FLAGS: tuple[tuple[str, ArgValue], ...] = (("metrics", True),)

STEP = 512
"""Default of --ubatch-size (llama.cpp's common.h)."""

# In single-model mode the log tells no percentage.
PHRASES = (
    Phrase("weights", r"load_model: loading (?:draft )?model '|loading draft model '", 0.0),
    Phrase("weights", r"load_tensors: offloaded \d+/\d+ layers"),
    Phrase("kv", r"llama_kv_cache\w*: +size = +[\d.]+ MiB"),
    Phrase("warmup", r"warming up the model"),
    Phrase("kv", r"initializing, n_slots = \d+, n_ctx_slot = \d+", 1.0),
    Phrase("http", r"model loaded$|HTTP server is listening"),
    Phrase("ready", r"(?:server is |router server is )?listening on http\S+", 1.0),
)

AGE = re.compile(r"(\d+)\.(\d\d)\.(\d{3})\.(\d{3}) [A-Z] ")
"""Minutes, seconds, milliseconds and microseconds since its start, before a line."""

# The target's cache is made before a drafter's.
KV = re.compile(r"llama_kv_cache\w*: size = .*\bK \((\w+)\): .*\bV \((\w+)\):")

LISTS = ListArgs(
    repeated=frozenset({
        "control-vector", "control-vector-scaled", "lora", "lora-scaled", "override-kv", "override-tensor",
        "override-tensor-draft",
    })
)  # fmt: skip
"""Flags that builds up to autumn 2025 take once per value; later ones want commas in one value."""

_SHORT = {
    "md": "model-draft", "draft": "draft-max", "gpu-layers": "n-gpu-layers", "lv": "verbosity", "v": "verbose",
    "td": "threads-draft", "tbd": "threads-batch-draft", "devd": "device-draft", "hfd": "hf-repo-draft",
    "hfrd": "hf-repo-draft", "otd": "override-tensor-draft", "cmoed": "cpu-moe-draft", "ncmoed": "n-cpu-moe-draft",
}  # fmt: skip
"""Short flags whose long name in the flag table older builds lack."""
_VARIABLES = {
    "n-parallel": "parallel", "batch": "batch-size", "ubatch": "ubatch-size", "endpoint-metrics": "metrics",
    "endpoint-slots": "slots", "endpoint-props": "props", "embeddings": "embedding", "think": "reasoning-format",
    "think-budget": "reasoning-budget", "static-path": "path", "hfd-repo": "hf-repo-draft", "hf-repo-v": "hf-repo-v",
}  # fmt: skip
"""Flags whose variables, after LLAMA_ARG_, have another name (llama.cpp's common/arg.cpp, `set_env`)."""
_OF_FLAG = "LLAMA_ARG_"


class LlamaCpp(EngineAdapter):
    """Adapter of llama.cpp's `llama-server`."""

    kind = EngineKind.LLAMACPP
    title = "llama.cpp"
    # No `speaks_since`, as its builds have numbers only: messages since 2025-12 (PR #17570), responses since 2026-01.
    program = ("llama-server",)
    probes = Probes(alive="/health")
    # No death words: one process, whose connections break off.
    metrics = MetricNames(
        path="/metrics",
        # These counters move when a request ends, not while it runs: what is live is in /slots.
        slots="/slots",
        generated=("llamacpp:tokens_predicted_total",),
        prefilled=("llamacpp:prompt_tokens_total",),
        timed_prompt=("llamacpp:prompt_tokens_total",),
        prompt_seconds=("llamacpp:prompt_seconds_total",),
        prefix_hits=("llamacpp:prompt_tokens_cached_total",),
        prefix_misses=("llamacpp:prompt_tokens_total",),
        kv_used=("llamacpp:kv_cache_usage_ratio",),
        running=("llamacpp:requests_processing",),
        waiting=("llamacpp:requests_deferred",),
        # A rejected draft may be replayed for ever (llama.cpp #23268), so decodes count only without slots.
        moving_without_slots=("llamacpp:n_decode_total",),
        drafts=("llamacpp:spec_decode_num_drafts_total",),
        draft_tokens=("llamacpp:spec_decode_num_draft_tokens_total",),
        accepted=("llamacpp:spec_decode_num_accepted_tokens_total",),
        accepted_at=("llamacpp:spec_decode_num_accepted_tokens_per_pos_total",),
        started=(),
    )
    metric_prefix = "llamacpp:"
    phrases = PHRASES
    causes = (
        logs.cause(
            "out_of_memory",
            r"failed to allocate (?:CUDA\d* )?buffer|unable to allocate CUDA"
            r"|ggml_backend_cuda_buffer_type_alloc_buffer",
            "It could not allocate its buffers",
            "Lower `ctx-size` or `parallel` in the profile, or stop what else holds memory.",
        ),
    )
    flag_source = FlagSource(
        __file__,
        "llama.cpp",
        FlagSyntax(reads_c_numbers=True, has_builds=True),
        own_images=r"ghcr\.io/ggml-org/llama\.cpp[:@]",
        version_in_tag=r"llama\.cpp:\S*?-(b\d{4,6}|v\d+\.\d+\.\d+)",
    )
    command_line = CommandLine(
        model=("model", "hf-repo"),
        is_model_positional=False,
        names="alias",
        drafter="model-draft",
        short=MappingProxyType(_SHORT),
        resolves_long=True,
        ours=frozenset({("metrics",), ("no-mmap",), ("load-mode", "none"), ("slot-save-path", containers.KV_TARGET)}),
    )
    owned_by = "llamacpp"
    cached_loaders = frozenset({"", "auto", "none", "mmap", "mlock", "mmap+mlock"})
    takes_adapters = True

    @property
    def lists(self) -> ListArgs:
        return LISTS

    def container(self, profile: Profile, launch: LaunchContext) -> ContainerSpec:
        model = argv.target_model(profile)
        args, env = _read_not_mapped(profile)
        flags: tuple[tuple[str, ArgValue], ...] = DEFAULT_FLAGS
        kept = containers.kept_kv(profile, launch)
        if kept:
            flags = (*flags, ("slot-save-path", containers.KV_TARGET if launch.containerised else kept))
        if profile.adapters:  # loaded at scale 0; a request names its own
            paths = ",".join(profile.models[name].ref for name in profile.adapters)
            flags = (*flags, ("lora", paths), ("lora-init-without-apply", True))
        words = [
            *containers.program(profile, self.program),
            *("--model" if model.path else "--hf-repo", model.ref),
            *("--host", argv.HOST, "--port", str(launch.port), "--alias", profile.name),
            *argv.flag_words(argv.overlay_args(flags, args), profile.models),
        ]
        return containers.build_container(profile, launch, words, env=env, kept=kept)

    def adapter_request(self, profile: Profile, name: str) -> Mapping[str, Any]:
        return {"lora": [{"id": profile.adapters.index(name), "scale": 1.0}]}

    def flag_of_variable(self, name: str) -> str | None:
        if not name.startswith(_OF_FLAG):
            return None
        word = name.removeprefix(_OF_FLAG).lower().replace("_", "-")
        return _VARIABLES.get(word, word)

    def keeps_kv(self, profile: Profile) -> bool:
        """Not with LoRA: a slot's file does not tell which adapter its cache was computed with."""
        profile = with_variables(profile)
        return profile.nodes == 1 and not (profile.adapters or lookup(profile.args, "lora", "lora-scaled"))

    def context(self, profile: Profile) -> int | None:
        profile = with_variables(profile)
        total = parse_token_count(lookup(profile.args, "ctx-size", "c"))
        slots = parse_token_count(lookup(profile.args, "parallel", "np")) or 1
        if not total:
            return profile.context
        return total if lookup(profile.args, "kv-unified") else total // max(1, slots)

    def speculation(self, profile: Profile) -> str | None:
        profile = with_variables(profile)
        method = lookup(profile.args, "spec-type") or ("draft" if _drafter(profile) else None)
        depth = lookup(profile.args, "spec-draft-n-max", "draft-max", "draft")
        if not method:
            return None
        return f"{method} k={depth}" if depth else str(method)

    def rules(self) -> tuple[Rule, ...]:
        return RULES

    def levers(self) -> tuple[Lever, ...]:
        return LEVERS

    def age(self, line: str) -> float | None:
        hit = AGE.match(line)
        return hit and int(hit[1]) * 60 + int(hit[2]) + int(hit[3] + hit[4]) / 1e6

    def kv_dtype(self, lines: Sequence[str]) -> str | None:
        """Read the KV cache's type from the log; "q8_0/f16" where keys and values differ."""
        hit = logs.first_match(lines, KV)
        return hit and (hit[1] if hit[1] == hit[2] else f"{hit[1]}/{hit[2]}")

    def memory_beside(self, profile: Profile) -> Iterator[tuple[str, int | None]]:
        """Yield the cache of prompts where its size is given: MiB, or -1 for no limit."""
        yield from terms.held_by_flags(_long(with_variables(profile).args), {"cache-ram": MIB})

    def memory_terms(self, profile: Profile, facts: Facts, box_bytes: int | None) -> Iterator[Term]:
        """Terms of llama.cpp: all slots share a cache of --ctx-size tokens; 0 is the model's own context."""
        profile = with_variables(profile)
        model = _drafter(profile)
        yield from terms.loaded_terms(profile, facts, terms.Drafting("mtp", str(model) if model else None))
        target = facts.get(terms.TARGET, terms.NO_TARGET)
        held, why = parse_token_count(lookup(profile.args, "ctx-size", "c")), "ctx-size"
        if not held and f"{_OF_FLAG}CTX_SIZE" in profile.env_from:
            yield Term(name="kv", source="ctx-size comes from the daemon's environment (LLAMA_ARG_CTX_SIZE)")
            return
        if not held and isinstance(target, WeightFacts):
            held, why = target.context, "ctx-size is not given: the model's own context"
        if held:
            step = parse_token_count(lookup(profile.args, "ubatch-size", "ub")) or STEP
            yield terms.cache_term(profile, facts, held, why, width_of=_cache_width, step=step)
        else:
            yield Term(name="kv", source="ctx-size is not given, and the model's own context is not known")

    def propose_flags(
        self, proposal: Proposal, facts: WeightFacts, cache: KvCachePlan | None, box: MemoryBudget
    ) -> None:
        proposal.arg("n-gpu-layers", 999, "All of them: the memory is one pool, and the GPU reads it faster.")
        if cache is not None:
            each = f"{SEQUENCES} requests of {tokens(cache.held // SEQUENCES)}."
            why = cache.why if cache.held == cache.context else each
            proposal.arg("ctx-size", cache.held, f"{why} llama.cpp counts the tokens of all slots together.")
            proposal.arg("parallel", SEQUENCES, "Slots: requests at once.")
            proposal.arg("kv-unified", True, "Slots share the cache, so that one of them may use the whole context.")

    def tasks(self, profile: Profile, target: WeightFacts | None) -> frozenset[Task] | None:
        profile = with_variables(profile)
        if lookup(profile.args, "reranking", "rerank"):
            return POOLING
        return frozenset({Task.EMBED if lookup(profile.args, "embedding", "embeddings") else Task.GENERATE})

    def reads_images(self, profile: Profile, target: WeightFacts | None) -> bool | None:
        """Whether it has a vision tower; None when it fetches the model itself."""
        profile = with_variables(profile)
        if lookup(profile.args, "no-mmproj"):
            return False
        # A tower that llama.cpp fetches itself comes with the model.
        return bool(lookup(profile.args, "mmproj", "mmproj-url")) or (
            None if lookup(profile.args, "hf-repo") else False
        )

    def needs_fixes(self, version: tuple[int, ...] | None, *, harmony: bool) -> frozenset[FixName]:
        """Older builds refuse the tool types that newer ones skip."""
        return frozenset({FixName.RESPONSES_TOOL_TYPES})

    def forced_length(self, tokens: int) -> dict[str, Any]:
        return {"max_tokens": tokens, "ignore_eos": True}

    def uncached_prompt(self, salt: str) -> dict[str, Any]:
        return {"cache_prompt": False}

    def count_request(self, model: str, content: str) -> Counting | None:
        return Counting("/tokenize", {"model": model, "content": content})

    def tokenize_request(self, model: str, text: str) -> Counting | None:
        return self.count_request(model, text)

    def recognise(self, words: Sequence[str], name: str, image: str) -> tuple[Sequence[str], Sequence[str]] | None:
        if name == "llama-server":
            return [] if words[0] == name else words[:1], words[1:]
        return (["/app/llama-server"], words) if re.search(r"(^|/)llama\.cpp:[^/]*server", image) else None


def with_variables(profile: Profile) -> Profile:
    """Add the flags that the profile's LLAMA_ARG_* variables stand for to its args; a flag precedes its variable."""
    found: dict[str, ArgValue] = {}
    for name, text in profile.env.items():
        if flag := ENGINE.flag_of_variable(name):
            is_on = text.lower() in ("on", "enabled", "true", "1")  # llama.cpp's is_truthy
            found[flag] = is_on if ENGINE.is_bare_flag(flag) else text
    return profile.replace(args=argv.overlay_args(found.items(), _long(profile.args))) if found else profile


def _long(args: Mapping[str, ArgValue]) -> dict[str, ArgValue]:
    return {ENGINE.long_name(key) or key: value for key, value in args.items()}


def _drafter(profile: Profile) -> ArgValue:
    return lookup(profile.args, "spec-draft-model", "model-draft", "md")


def _cache_width(profile: Profile, _target: WeightFacts) -> terms.CacheWidth | None:
    key, value = _ggml(profile, "cache-type-k", "ctk"), _ggml(profile, "cache-type-v", "ctv")
    return terms.CacheWidth(key, value) if key and value else None


def _ggml(profile: Profile, *flags: str) -> float | None:
    return terms.GGML_BITS.get(str(lookup(profile.args, *flags) or "f16").lower())


def _read_not_mapped(profile: Profile) -> tuple[dict[str, ArgValue], Mapping[str, str]]:
    """Return the arguments and variables by which llama-server reads its files and does not map them.

    Mapped files load ten times slower on a Spark (224 s against 22 s). Builds of autumn 2026 have --load-mode, older
    ones --no-mmap, and each refuses the other's flag, but ignores the variable that it does not know.
    """
    args = dict(profile.args)
    if lookup(args, "load-mode", "mmap") is not None or lookup(args, "no-mmap") is False:
        return args, containers.NO_VARIABLES
    args = {key: value for key, value in args.items() if key.replace("_", "-") != "no-mmap"}
    return args, {"LLAMA_ARG_LOAD_MODE": "none", "LLAMA_ARG_NO_MMAP": "1"}


def _maps(profile: Profile) -> Iterator[Hit]:
    mode = str(lookup(profile.args, "load-mode") or "")
    if lookup(profile.args, "no-mmap") is False or lookup(profile.args, "mmap") is True or mode.startswith("mmap"):
        path = flag_path(profile, "load-mode", "mmap", "no-mmap")
        text = "mapped files load ten times slower on a Spark"
        yield Hit(path, text, "Remove it: sparkdash makes llama.cpp read them.")


def _sleeps(profile: Profile) -> Iterator[Hit]:
    idle_s = lookup(profile.args, "sleep-idle-seconds")
    if idle_s is not None and idle_s != -1:
        text = "it takes its memory back at the next request, and nobody asks whether there is room"
        yield Hit(flag_path(profile, "sleep-idle-seconds"), text, "Remove it, and set `idle_ttl_s` in config.toml.")


RULES = (
    Rule(
        "llamacpp-mmap",
        Severity.WARNING,
        "llama.cpp must not map its files",
        "22 s without mapping, 224 s with: llama.cpp PR#27742",
        _maps,
    ),
    Rule(
        "llamacpp-sleep",
        Severity.ERROR,
        "an engine that unloads and loads its weights by itself",
        "llama-server's --sleep-idle-seconds, from build 7836 on: llama.cpp#20227",
        _sleeps,
    ),
)

LEVERS = (
    Lever(
        "weights",
        "Remove what maps its files: sparkdash makes llama.cpp read them.",
        "llama.cpp PR#27742",
        224.0,
        22.0,
        lambda profile, _start: any(_maps(profile)),
    ),
)

ENGINE = LlamaCpp()
