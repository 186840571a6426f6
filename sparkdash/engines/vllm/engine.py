"""vLLM, 0.16 to 0.33: `vllm serve`. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from sparkdash.domain.container import ContainerSpec
from sparkdash.domain.memory import Term
from sparkdash.domain.profile import ApiProtocol, ArgValue, EngineKind, FixName, Profile
from sparkdash.domain.request import Task
from sparkdash.domain.weights import WeightFacts
from sparkdash.engines import argv, containers, logs
from sparkdash.engines.adapter import NO_FIXES, POOLING, CommandLine, Counting, EngineAdapter, HelpCommand, Prompting
from sparkdash.engines.argv import lookup, parse_object
from sparkdash.engines.containers import LaunchContext
from sparkdash.engines.flag_table import FlagSource, FlagSyntax
from sparkdash.engines.memory_terms import Facts
from sparkdash.engines.proposal import KnownImage, KvCachePlan, MemoryBudget, Proposal
from sparkdash.engines.rule import Rule
from sparkdash.engines.start_stages import Lever
from sparkdash.engines.vllm import flags, memory, nodes, surface

# Without it the usage of an answer does not tell how many prompt tokens came from the prefix cache.
DEFAULT_FLAGS = (("enable-prompt-tokens-details", True),)
# What is asked of it every second would fill its log with nothing else.
QUIET_FLAGS = (("disable-access-log-for-endpoints", "/health,/metrics"),)

QUANTIZED_KV = re.compile(r"Using (\S+) data type to store kv cache")
# vLLM resolves `auto` from the checkpoint before it writes this line (engine/arg_utils.py, seen in 0.32);
# what is left of it is the model's dtype.
CONFIG = re.compile(r"Initializing a V\d LLM engine.*?\bdtype=torch\.(?P<model>\w+).*?\bkv_cache_dtype=(?P<kv>\w+)")

_POOLS = {
    "runner": ("pooling",),
    "convert": ("embed", "classify", "reward"),
    "task": ("embed", "embedding", "classify", "score", "reward"),
}
"""Flags that turn a model into a pooling model: `--task` until 0.14, the others since."""
_RENDERED_ELSEWHERE = ("tokenizer", "tokenizer-mode", "tokenizer-revision", "exclude-tools-when-tool-choice-none")
"""Flags that render prompts differently from the model's own files, unless set to `auto` or `hf`."""
_HARMONY_TOOLS = frozenset({"function", "web_search_preview", "code_interpreter", "container"})
"""Tool types that vLLM takes for gpt-oss; it answers 400 to others, up to 0.33 at least."""


_OTHER_COMMANDS = ("bench", "chat", "complete", "collect-env", "run-batch", "launch")
"""Commands of `vllm` that serve nothing (0.32, entrypoints/cli)."""


class Vllm(EngineAdapter):
    """Adapter of `vllm serve`."""

    kind = EngineKind.VLLM
    title = "vLLM"
    # vLLM PRs #20504 and #22627; 0.11.0 was seen to lack messages.
    speaks_since: Mapping[ApiProtocol, tuple[int, ...] | None] = MappingProxyType(
        {ApiProtocol.RESPONSES: (0, 10), ApiProtocol.MESSAGES: (0, 11, 1)}
    )
    program = ("vllm", "serve")
    probes = surface.PROBES
    death_words = surface.DEATH_WORDS
    metrics = surface.METRICS
    metric_prefix = "vllm:"
    weights_line = surface.WEIGHTS_LINE
    phrases = (*nodes.PHRASES, *surface.PHRASES)
    follows: Mapping[str, str] = MappingProxyType(surface.FOLLOWS)
    compiled_line = surface.COMPILED
    causes = (
        logs.cause(
            "out_of_memory",
            r"Free memory on device .* is less than desired|No available memory for the cache blocks"
            r"|larger than the available KV cache memory",
            "It found too little memory for its settings",
            "Lower `gpu-memory-utilization` or `max-model-len` in the profile, or stop what else holds memory.",
        ),
    )
    cached_loaders = frozenset({"", "auto", "safetensors", "fastsafetensors"})
    parallel_flags = MappingProxyType(
        {
            "tp": "tensor-parallel-size",
            "pp": "pipeline-parallel-size",
            "dp": "data-parallel-size",
            "ep": "enable-expert-parallel",  # over all of tp and dp
            "dcp": "decode-context-parallel-size",
        }
    )
    runs_on_nodes = True
    lists = flags.LISTS
    flag_source = FlagSource(
        __file__,
        "vLLM",
        FlagSyntax(abbreviates=True, nests=True),
        own_images=r"(docker\.io/)?vllm/vllm-openai[:@]|nvcr\.io/nvidia/vllm[:@]",
        version_in_tag=r"vllm-openai:v(\d+\.\d+[\w.]*)",
    )
    command_line = CommandLine(
        model=("model",),
        names="served-model-name",
        short=MappingProxyType(flags.SHORT),
        attached=MappingProxyType({"-O": "--optimization-level"}),
        old_speculation=MappingProxyType(flags.OLD_SPECULATION),
        ours=frozenset({("enable-prompt-tokens-details",)}),
    )
    owned_by = "vllm"
    known_image = KnownImage(
        "nvcr.io/nvidia/vllm:26.04-py3", "0.19.0", "NVIDIA's build for arm64 and SM121; it holds vLLM 0.19.0"
    )
    takes_vllm_keys = True
    takes_adapters = True
    usage_on_request = True
    tool_flag = "enable-auto-tool-choice"

    def container(self, profile: Profile, launch: LaunchContext) -> ContainerSpec:
        flags.refuse_known_bad(profile)
        model = argv.target_model(profile, pinnable=True)
        defaults = (
            *DEFAULT_FLAGS,
            *(QUIET_FLAGS if flags.is_quiet(profile, launch.flags) else ()),
            *_adapters(profile),
        )
        words = [
            *containers.program(profile, self.program),
            model.ref,
            *("--host", argv.HOST, "--port", str(launch.port)),
            *("--served-model-name", *(one for one in self.served_names(profile) if one not in profile.adapters)),
            *(("--revision", model.revision) if model.revision else ()),
            *argv.flag_words(argv.overlay_args(defaults, profile.args), profile.models, self.lists),
        ]
        if profile.nodes > 1:
            return nodes.build_containers(profile, launch, words)
        return containers.build_container(profile, launch, words, shm_size=containers.SHM_SIZE)

    def help(self, profile: Profile) -> HelpCommand | None:
        found = super().help(profile)
        return found and HelpCommand((*found.argv[:-1], "--help=all"), quick=False)

    def context(self, profile: Profile) -> int | None:
        return surface.context(profile.args) or profile.context

    def speculation(self, profile: Profile) -> str | None:
        return surface.speculation(profile.args)

    def rules(self) -> tuple[Rule, ...]:
        from sparkdash.engines.vllm.rules import RULES

        return RULES

    def levers(self) -> tuple[Lever, ...]:
        from sparkdash.engines.vllm.rules import LEVERS

        return LEVERS

    def kv_dtype(self, lines: Sequence[str]) -> str | None:
        if hit := logs.first_match(lines, QUANTIZED_KV):
            return hit[1]
        hit = logs.first_match(lines, CONFIG)
        return hit and (hit["model"] if hit["kv"] == "auto" else hit["kv"])

    memory_variables: Mapping[str, int | None] = MappingProxyType(memory.MEMORY_VARIABLES)

    def memory_terms(self, profile: Profile, facts: Facts, box_bytes: int | None) -> Iterator[Term]:
        return memory.memory_terms(profile, facts, box_bytes)

    def loader_terms(self, profile: Profile) -> Iterator[Term]:
        return memory.loader_terms(profile)

    def overhead(self, profile: Profile, *, is_shared: bool) -> Term:
        return memory.overhead(profile, is_shared=is_shared)

    def sizes_by_free_memory(self, profile: Profile) -> bool:
        return memory.sizes_by_free_memory(profile)

    def fills_page_cache(self, profile: Profile) -> bool:
        """Whether it prefetches: --safetensors-load-strategy=prefetch (weight_utils.py, 0.32)."""
        return lookup(profile.args, "safetensors-load-strategy") == "prefetch"

    def propose_flags(
        self, proposal: Proposal, facts: WeightFacts, cache: KvCachePlan | None, box: MemoryBudget
    ) -> None:
        memory.propose(proposal, facts, cache, box)

    def tasks(self, profile: Profile, target: WeightFacts | None) -> frozenset[Task] | None:
        pools = any(lookup(profile.args, flag) in words for flag, words in _POOLS.items())
        return POOLING if pools else super().tasks(profile, target)

    def reads_images(self, profile: Profile, target: WeightFacts | None) -> bool | None:
        if target is None:
            return None
        return target.sees and not lookup(profile.args, "language-model-only") and _image_limit(profile.args) != 0

    def prompting(self, profile: Profile) -> Prompting | str:
        args = profile.args
        if changed := next(
            (flag for flag in _RENDERED_ELSEWHERE if lookup(args, flag) not in (None, False, "auto", "hf")), None
        ):
            return f"its profile has --{changed}"
        template, given = lookup(args, "chat-template"), lookup(args, "chat-template-content-format")
        words = parse_object(lookup(args, "default-chat-template-kwargs"))
        if words is None:
            return "its profile's --default-chat-template-kwargs is no JSON object"
        return Prompting(
            template=None if template is None else str(template),
            words=words,
            in_parts={"openai": True, "string": False}.get(str(given)),
        )

    def needs_fixes(self, version: tuple[int, ...] | None, *, harmony: bool) -> frozenset[FixName]:
        """Before 0.23 it refuses requests of Claude Code (2026); before 0.25, and for gpt-oss, unknown tool types.

        0.32 renames the role `developer` itself, where the model's template does not have it.
        """
        known = version or (999,)
        found = frozenset({FixName.DEVELOPER_AS_SYSTEM}) if known < (0, 32) and not harmony else NO_FIXES
        if known < (0, 23):
            found |= {FixName.MESSAGES_SYSTEM_TURNS, FixName.MESSAGES_NEW_KEYS}
        return found | {FixName.RESPONSES_TOOL_TYPES} if harmony or known < (0, 25) else found

    def takes_tool_type(self, kind: object, *, harmony: bool) -> bool:
        return kind in _HARMONY_TOOLS if harmony else kind != "namespace"

    def count_request(self, model: str, content: str) -> Counting | None:
        return surface.count_request(model, content)

    def tokenize_request(self, model: str, text: str) -> Counting | None:
        return surface.tokenize_request(model, text)

    def recognise(self, words: Sequence[str], name: str, image: str) -> tuple[Sequence[str], Sequence[str]] | None:
        if words[1:3] == ["-m", "vllm.entrypoints.openai.api_server"]:
            return [], words[3:]
        if name == "vllm" and words[1:2] == ["serve"]:
            return [] if words[0] == name else words[:2], words[2:]
        if words[2:3] == ["serve"] and words[1].endswith("/sparkring/toolchain/toolchain.py"):
            return words[:3], words[3:]
        # An image of one's own has the server for its entrypoint too: its command begins with the server's flags.
        is_own = "vllm" in image and bool(words[:1]) and words[0].startswith("--") and "--model" in words
        if is_own or re.search(r"(^|/)vllm-openai(:|@|$)", image):
            return None if words[:1] and words[0] in _OTHER_COMMANDS else ([], words)
        return ([], words[1:]) if words[:1] == ["serve"] and "vllm" in image else None


def _image_limit(args: Mapping[str, ArgValue]) -> object:
    """Return the limit of images per prompt: the flag itself, or one of the image options."""
    if (alone := lookup(args, "limit-mm-per-prompt.image")) is not None:
        return alone
    limit = (parse_object(lookup(args, "limit-mm-per-prompt")) or {}).get("image")
    return limit.get("count") if isinstance(limit, dict) else limit


def _adapters(profile: Profile) -> tuple[tuple[str, ArgValue], ...]:
    named: list[object] = [f"{name}={profile.models[name].ref}" for name in profile.adapters]
    return (("enable-lora", True), ("lora-modules", named)) if named else ()


ENGINE = Vllm()
