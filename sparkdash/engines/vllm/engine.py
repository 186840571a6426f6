"""vLLM, 0.16 to 0.33: `vllm serve`. Pure."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from types import MappingProxyType

from sparkdash.domain.container import ContainerSpec
from sparkdash.domain.memory import Term
from sparkdash.domain.profile import ApiProtocol, ArgValue, EngineKind, FixName, Profile
from sparkdash.domain.request import Task
from sparkdash.domain.weights import WeightFacts
from sparkdash.engines import argv, containers, logs
from sparkdash.engines import memory_terms as terms
from sparkdash.engines.adapter import NO_FIXES, POOLING, CommandLine
from sparkdash.engines.argv import lookup, parse_object, parse_share, parse_size, parse_token_count, version_pair
from sparkdash.engines.containers import LaunchContext
from sparkdash.engines.flag_table import FlagSource, FlagSyntax
from sparkdash.engines.memory_terms import Facts
from sparkdash.engines.proposal import SEQUENCES, SHARE, STEP, KnownImage, KvCachePlan, MemoryBudget, Proposal
from sparkdash.engines.rule import Rule
from sparkdash.engines.start_stages import Lever
from sparkdash.engines.vllm import nodes
from sparkdash.engines.vllm.surface import PHRASES, VllmSurface
from sparkdash.units import GIB, gib

# Without it the usage of an answer does not tell how many prompt tokens came from the prefix cache.
DEFAULT_FLAGS = (("enable-prompt-tokens-details", True),)
# What is asked of it every second would fill its log with nothing else.
QUIET_FLAGS = (("disable-access-log-for-endpoints", "/health,/metrics"),)

QUANTIZED_KV = re.compile(r"Using (\S+) data type to store kv cache")
# vLLM resolves `auto` from the checkpoint before it writes this line (engine/arg_utils.py, seen in 0.32);
# what is left of it is the model's dtype.
CONFIG = re.compile(r"Initializing a V\d LLM engine.*?\bdtype=torch\.(?P<model>\w+).*?\bkv_cache_dtype=(?P<kv>\w+)")

OLD_SPECULATION = {
    "speculative-model": "model",
    "speculative-method": "method",
    "num-speculative-tokens": "num_speculative_tokens",
    "speculative-draft-tensor-parallel-size": "draft_tensor_parallel_size",
    "speculative-max-model-len": "max_model_len",
}
"""Flags of old recipes, and their keys in --speculative-config."""
_POOLS = {
    "runner": ("pooling",),
    "convert": ("embed", "classify", "reward"),
    "task": ("embed", "embedding", "classify", "score", "reward"),
}
"""Flags that turn a model into a pooling model: `--task` until 0.14, the others since."""
_HARMONY_TOOLS = frozenset({"function", "web_search_preview", "code_interpreter", "container"})
"""Tool types that vLLM takes for gpt-oss; it answers 400 to others, up to 0.33 at least."""

_OTHER_COMMANDS = ("bench", "chat", "complete", "collect-env", "run-batch", "launch")
"""Commands of `vllm` that serve nothing (0.32, entrypoints/cli)."""

SHARES = ((0, 20), 0.92, 0.90)
"""Default of --gpu-memory-utilization: from that version on, and before (read in the wheels 0.16.0 to 0.33.0)."""
MEMORY_VARIABLES = {
    "LMCACHE_MAX_LOCAL_CPU_SIZE": GIB,
    "VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE": 1,
    "VLLM_MM_INPUT_CACHE_GIB": 2 * GIB,  # once in the API server, once in the engine
}
"""Variables that allocate memory beside the share (vLLM's envs.py, 0.9 to 0.32; LMCache's configuration)."""
MEMORY_FLAGS = {"kv-offloading-size": GIB, "cpu-offload-gb": GIB, "mm-processor-cache-gb": 2 * GIB}
"""Flags that take host memory beside the share (vLLM 0.32, config/); the processor's cache twice, as its variable."""
BLOCK = 16
"""Tokens per KV block without --block-size: vLLM's default on CUDA."""
HOST_BYTES = int(5.6 * GIB)
"""Memory beyond the share: host side and CUDA graphs on a GB10 (GLM-5.3-Flash-EXL3-2x-DGX-Sparks#118)."""
LOADER_BYTES = int(4.4 * GIB)
"""Memory of the instanttensor loader: a KV cache of 10.6 instead of 15.0 GiB (GLM-5.3-Flash-EXL3-2x-DGX-Sparks#204)."""
FILE_TIER = (0, 32)
"""Version from which `fs` is among its KV offloading tiers, as far as we read."""
FAST_LOADER = (0, 22)
"""Version from which fastsafetensors is among its dependencies."""
READ = "Read, since a Spark copies slowly out of mapped files (vcruz305/vllm-exl3 PR#28)."
"""Reason for the eager strategy."""
FAST_LOADER_SHARE = 0.8
"""Share of the memory above which that loader runs out of it (eugr/spark-vllm-docker)."""


class Vllm(VllmSurface):
    """Adapter of `vllm serve`."""

    kind = EngineKind.VLLM
    title = "vLLM"
    # vLLM PRs #20504 and #22627; 0.11.0 was seen to lack messages.
    speaks_since: Mapping[ApiProtocol, tuple[int, ...] | None] = MappingProxyType(
        {ApiProtocol.RESPONSES: (0, 10), ApiProtocol.MESSAGES: (0, 11, 1)}
    )
    program = ("vllm", "serve")
    metric_prefix = "vllm:"
    phrases = (*nodes.PHRASES, *PHRASES)
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
        short=MappingProxyType({"O": "optimization-level"}),
        attached=MappingProxyType({"-O": "--optimization-level"}),
        old_speculation=MappingProxyType(OLD_SPECULATION),
        ours=frozenset({("enable-prompt-tokens-details",)}),
    )
    owned_by = "vllm"
    known_image = KnownImage(
        "nvcr.io/nvidia/vllm:26.04-py3", "0.19.0", "NVIDIA's build for arm64 and SM121; it holds vLLM 0.19.0"
    )
    takes_adapters = True
    tool_flag = "enable-auto-tool-choice"

    def container(self, profile: Profile, launch: LaunchContext) -> ContainerSpec:
        model = argv.target_model(profile, pinnable=True)
        # A process that is killed leaves the staging area in the box's own /dev/shm (vllm#57303).
        kept = containers.kept_kv(profile, launch) if self.keeps_kv(profile) and launch.containerised else ""
        defaults = (
            *DEFAULT_FLAGS,
            *(QUIET_FLAGS if _is_quiet(profile) else ()),
            *_adapters(profile),
            *(_file_tier(profile) if kept else ()),
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
        return containers.build_container(profile, launch, words, shm_size=containers.SHM_SIZE, kept=kept)

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

    memory_variables: Mapping[str, int | None] = MappingProxyType(MEMORY_VARIABLES)
    memory_flags: Mapping[str, int] = MappingProxyType(MEMORY_FLAGS)

    writes_kv = True

    def keeps_kv(self, profile: Profile) -> bool:
        """Not beside a connector of the owner's."""
        own = lookup(profile.args, "kv-transfer-config", "kv-offloading-size")
        version = version_pair(profile.engine_version)
        return profile.nodes == 1 and own is None and version is not None and version >= FILE_TIER

    def memory_beside(self, profile: Profile) -> Iterator[tuple[str, int | None]]:
        yield from super().memory_beside(profile)
        if profile.keep_kv and self.keeps_kv(profile):
            yield "keep_kv", _staged(profile)
        transfer = parse_object(lookup(profile.args, "kv-transfer-config")) or {}
        extra = transfer.get("kv_connector_extra_config")
        if isinstance(extra, dict) and lookup(profile.args, "kv-offloading-size") is None:  # which overwrites it
            yield from terms.held_by_flags(extra, {"cpu-bytes-to-use": 1})

    def memory_terms(self, profile: Profile, facts: Facts, box_bytes: int | None) -> Iterator[Term]:
        """Terms of vLLM: ceil(total x share) (`request_memory` in v1/worker/utils.py), or a cache by its own flag."""
        size = parse_size(lookup(profile.args, "kv-cache-memory-bytes"))
        blocks = parse_token_count(lookup(profile.args, "num-gpu-blocks-override"))
        if size is not None:
            kv = Term(name="kv", bytes=size, source="--kv-cache-memory-bytes")
        elif blocks is not None:
            kv = _blocks(profile, facts, blocks)
        elif not profile.gpu:
            kv = _cpu_cache(profile)
        else:
            yield _share(profile, box_bytes)
            return
        yield from terms.loaded_terms(profile, facts, _drafting(profile))
        yield kv

    def loader_terms(self, profile: Profile) -> Iterator[Term]:
        if lookup(profile.args, "load-format") == "instanttensor":
            source = "load-format instanttensor: 4.4 GiB on a GB10 (GLM-5.3-Flash-EXL3-2x-DGX-Sparks#204)"
            yield Term(name="loader", bytes=LOADER_BYTES, source=source)

    def overhead(self, profile: Profile, *, is_shared: bool) -> Term:
        """Term beyond weights and cache: less where vLLM counts a share, which holds part of it."""
        if is_shared and profile.gpu:
            source = "host side and CUDA graphs, not in the share: GLM-5.3-Flash-EXL3-2x-DGX-Sparks#118"
            return Term(name="overhead", bytes=HOST_BYTES, source=source)
        return terms.overhead_term(profile, measured=True)

    def sizes_by_free_memory(self, profile: Profile) -> bool:
        """Whether its cache shrinks as free memory falls while it profiles; it aborts when that grew.

        `determine_available_memory` in v1/worker/gpu_worker.py; not where --kv-cache-memory-bytes sets the size.
        """
        return profile.gpu and parse_size(lookup(profile.args, "kv-cache-memory-bytes")) is None

    def fills_page_cache(self, profile: Profile) -> bool:
        """Whether it prefetches: --safetensors-load-strategy=prefetch (weight_utils.py, 0.32)."""
        return lookup(profile.args, "safetensors-load-strategy") == "prefetch"

    def propose_flags(
        self, proposal: Proposal, facts: WeightFacts, cache: KvCachePlan | None, box: MemoryBudget
    ) -> None:
        _propose_memory(proposal, facts, cache, box)
        why = "NVIDIA's recipes for a Spark; a cache sized in bytes switches vLLM's own limits off, so keep it at"
        proposal.arg("max-num-seqs", SEQUENCES, f"{why} 16 or less.")
        why = "A prompt is computed in steps of so many tokens. Larger steps take memory that nobody has counted."
        proposal.arg("max-num-batched-tokens", STEP, why)
        _propose_backend(proposal, facts)
        _propose_loader(proposal, facts, box)
        if facts.mtp:
            proposal.profile["variants"] = {
                "mtp": {
                    "about": f"{proposal.profile['about']}, drafting with its own MTP layers",
                    "args": {"speculative-config": {"method": "mtp", "num_speculative_tokens": 2}},
                }
            }
            proposal.reasons["variants",] = (
                f"The headers show an MTP head ({gib(facts.bytes.draft)}). Measure it against the base: "
                "where a token reads few experts, drafting may cost more than it gains."
            )

    def tasks(self, profile: Profile, target: WeightFacts | None) -> frozenset[Task] | None:
        pools = any(lookup(profile.args, flag) in words for flag, words in _POOLS.items())
        return POOLING if pools else super().tasks(profile, target)

    def reads_images(self, profile: Profile, target: WeightFacts | None) -> bool | None:
        if target is None:
            return None
        return target.sees and not lookup(profile.args, "language-model-only") and _image_limit(profile.args) != 0

    def needs_fixes(self, version: tuple[int, ...] | None, *, harmony: bool) -> frozenset[FixName]:
        """Before 0.23 it refuses requests of Claude Code (2026); before 0.25, and for gpt-oss, unknown tool types.

        0.32 renames the role `developer` itself.
        """
        known = version or (999,)
        found = frozenset({FixName.DEVELOPER_AS_SYSTEM}) if known < (0, 32) and not harmony else NO_FIXES
        if known < (0, 23):
            found |= {FixName.MESSAGES_SYSTEM_TURNS, FixName.MESSAGES_NEW_KEYS}
        return found | {FixName.RESPONSES_TOOL_TYPES} if harmony or known < (0, 25) else found

    def takes_tool_type(self, kind: object, *, harmony: bool) -> bool:
        return kind in _HARMONY_TOOLS if harmony else kind != "namespace"

    def recognise(self, words: Sequence[str], name: str, image: str) -> tuple[Sequence[str], Sequence[str]] | None:
        if words[1:3] == ["-m", "vllm.entrypoints.openai.api_server"]:
            return [], words[3:]
        if name == "vllm" and words[1:2] == ["serve"]:
            return [] if words[0] == name else words[:2], words[2:]
        if words[2:3] == ["serve"] and words[1].endswith("/sparkring/toolchain/toolchain.py"):
            return words[:3], words[3:]
        if _is_server_image(words, image):
            return None if words[:1] and words[0] in _OTHER_COMMANDS else ([], words)
        return ([], words[1:]) if words[:1] == ["serve"] and "vllm" in image else None


def _is_server_image(words: Sequence[str], image: str) -> bool:
    """Whether the image's entrypoint is the server: one of one's own is known by a command that begins with flags."""
    begins_with_flag = bool(words[:1]) and words[0].startswith("--")
    is_own = ("vllm" in image and begins_with_flag and "--model" in words) or _begins_with_model(words)
    return is_own or re.search(r"(^|/)vllm-openai(:|@|$)", image) is not None


def _is_quiet(profile: Profile) -> bool:
    """Whether this vLLM can leave paths out of its access log: from 0.17 on.

    Some builds named 0.16 are older than the flag (vLLM PR #30011).
    """
    return (version_pair(profile.engine_version) or (0, 0)) > (0, 16)


def _begins_with_model(words: Sequence[str]) -> bool:
    """Whether a container's words are a model and vLLM's flags: no other server's image takes them so."""
    model, flag = (*words, "", "")[:2]
    is_place = "/" in model and not model.endswith((".sh", ".py"))
    return is_place and flag[:2] == "--" and not {"--served-model-name", "--max-model-len"}.isdisjoint(words)


def _image_limit(args: Mapping[str, ArgValue]) -> object:
    """Return the limit of images per prompt: the flag itself, or one of the image options."""
    if (alone := lookup(args, "limit-mm-per-prompt.image")) is not None:
        return alone
    limit = (parse_object(lookup(args, "limit-mm-per-prompt")) or {}).get("image")
    return limit.get("count") if isinstance(limit, dict) else limit


def _adapters(profile: Profile) -> tuple[tuple[str, ArgValue], ...]:
    named: list[object] = [f"{name}={profile.models[name].ref}" for name in profile.adapters]
    return (("enable-lora", True), ("lora-modules", named)) if named else ()


def _staged(profile: Profile) -> int:
    """Return the bytes of shared memory that kept blocks pass through: no longer conversation comes back."""
    return (parse_size(profile.shm_size or containers.SHM_SIZE) or 0) // 2


def _file_tier(profile: Profile) -> tuple[tuple[str, ArgValue], ...]:
    tiers = [{"type": "fs", "root_dir": containers.KV_TARGET}]
    extra = {"spec_name": "TieringOffloadingSpec", "cpu_bytes_to_use": _staged(profile), "secondary_tiers": tiers}
    connector = {"kv_connector": "OffloadingConnector", "kv_role": "kv_both", "kv_connector_extra_config": extra}
    return (("kv-transfer-config", json.dumps(connector)),)


def _share(profile: Profile, box: int | None) -> Term:
    flag = "gpu-memory-utilization"
    if (given := lookup(profile.args, flag)) is not None:
        return terms.share_term(flag, parse_share(given), box)
    found, (since, new, old) = version_pair(profile.engine_version), SHARES
    if found is None:
        return Term(name="utilization", source=f"--{flag} is not given, and its default depends on the version of vLLM")
    return terms.share_term(f"{flag}'s default", new if found >= since else old, box)


def _blocks(profile: Profile, facts: Facts, blocks: int) -> Term:
    target = facts.get(terms.TARGET)
    if isinstance(target, WeightFacts) and (target.hybrid or not all(layers.value_elements for layers in target.kv)):
        return Term(name="kv", source="vLLM sizes the blocks of hybrid and MLA models by rules of its own")
    size = parse_token_count(lookup(profile.args, "block-size")) or BLOCK
    return terms.cache_term(profile, facts, blocks * size, f"num-gpu-blocks-override {blocks} x {size}")


def _cpu_cache(profile: Profile) -> Term:
    text = profile.env.get("VLLM_CPU_KVCACHE_SPACE", "")
    if text.isdecimal():
        return Term(name="kv", bytes=int(text) * GIB, source="VLLM_CPU_KVCACHE_SPACE, in GiB")
    return Term(name="kv", source="VLLM_CPU_KVCACHE_SPACE is not given")


def _drafting(profile: Profile) -> terms.Drafting:
    config = parse_object(lookup(profile.args, "speculative-config")) or {}
    model = config.get("model") or lookup(profile.args, "spec-model")
    return terms.Drafting(
        str(config.get("method") or lookup(profile.args, "spec-method") or ""), str(model) if model else None
    )


def _propose_memory(proposal: Proposal, facts: WeightFacts, cache: KvCachePlan | None, box: MemoryBudget) -> None:
    if cache is None:
        if facts.context:
            proposal.arg("max-model-len", facts.context, "The model's own.")
        why = "vLLM takes this share whole: the configuration does not tell a token's KV size."
        proposal.arg(
            "gpu-memory-utilization", SHARE, f"{why} More is rarely free on a Spark (vllm-project/recipes PR#632)."
        )
        return
    proposal.arg("max-model-len", cache.context, cache.why)
    proposal.arg("kv-cache-memory-bytes", f"{cache.bytes // GIB}G", cache.size_reason(facts))
    share = min(SHARE, ceil(100 * (facts.bytes.total + cache.bytes + terms.OVERHEAD_BYTES) / box.total) / 100)
    why = "The same need as a share of the box: vLLM starts only while that much is free. It sizes nothing."
    proposal.arg("gpu-memory-utilization", share, why)


def _propose_backend(proposal: Proposal, facts: WeightFacts) -> None:
    if facts.architecture == "gpt_oss":
        why = "gpt-oss has attention sinks, which FLASH_ATTN lacks on a GB10 (vLLM 0.33.0, fa_utils.py)."
        proposal.arg("attention-backend", "TRITON_ATTN", why)
    elif (facts.kv_dtype or "").startswith("fp8"):
        why = "The checkpoint asks for an fp8 KV cache, which FLASH_ATTN lacks on a GB10 (vLLM 0.33.0, fa_utils.py)."
        proposal.arg("attention-backend", "FLASHINFER", why)


def _propose_loader(proposal: Proposal, facts: WeightFacts, box: MemoryBudget) -> None:
    left = f"{facts.quantization}, as the checkpoint itself says" if facts.quantization else "none"
    note = f"No `quantization` is given: vLLM finds it out ({left})."
    found = version_pair(proposal.profile.get("engine_version"))
    why = "2 minutes instead of 9 for 122B in int4 (NVIDIA forum t/361819 post 29)."
    fits = facts.bytes.total <= FAST_LOADER_SHARE * box.total
    if fits and found and found >= FAST_LOADER:
        proposal.arg("load-format", "fastsafetensors", why)
    else:
        proposal.arg("safetensors-load-strategy", "eager", READ)
        if fits:
            note += f" Where the image has the fastsafetensors package, write `load-format: fastsafetensors`: {why}"
    proposal.reasons["args",] = note


ENGINE = Vllm()
