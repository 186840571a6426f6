"""Rules: known mistakes of well-formed profiles, each with its evidence. Those of one engine are in its folder.

A rule by the flag table is an error where the engine is sure to refuse the line; a warning where the version is not
named or the image is a fork. Pure.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches

from sparkdash.catalog.catalog import Catalog, ProblemAt, ProfileProblem, nearest
from sparkdash.catalog.document import KeyPath, walk_strings
from sparkdash.domain.profile import EngineKind, Profile
from sparkdash.engines.argv import lookup, parse_token_count
from sparkdash.engines.flag_check import FlagFault, flag_complaints
from sparkdash.engines.memory_terms import BOX_BYTES
from sparkdash.engines.nodes import ADDRESSES, GID_INDEX, LINK_VARIABLES, WAYS, ways
from sparkdash.engines.registry import adapter_of, all_adapters
from sparkdash.engines.rule import Hit, Rule, Severity, flag_path, on_several_nodes, variables
from sparkdash.redaction import is_secret, is_secret_flag, is_secret_variable, masked_values, never
from sparkdash.units import GIB, natural

FLAG_EVIDENCE = (
    "read in the sources of vLLM 0.11 to 0.32, SGLang 0.5.3 to 0.5.23, llama.cpp b5640 to v0.5.0, TensorRT-LLM 1.3"
)
UNKNOWN = "unknown-flag"
FOREIGN = re.compile(r"(?:^|[-_./:])(?:amd64|x86[-_]64)(?:$|[-_./:])", re.IGNORECASE)
"""An image reference that names the other architecture; a Spark is arm64."""
MOVING = ("latest", "nightly", "main", "dev")
"""Tags that move from image to image, also as the last part of a tag."""
RUNTIME_FLAGS = ("device", "gpus", "hooks-dir", "privileged", "network", "security-opt", "ulimit")
SOCKETS = {"NCCL_IB_DISABLE": "1", "NCCL_NET": "socket"}
"""Values, in small letters, by which NCCL leaves RDMA unused."""


def _finder(fault: FlagFault) -> Callable[[Profile], Iterator[Hit]]:
    def find(profile: Profile) -> Iterator[Hit]:
        for one in flag_complaints(profile):
            if one.fault is fault:
                level = Severity.ERROR if one.certain else Severity.WARNING
                yield Hit(("args", *one.path), one.message, one.hint, level)

    return find


def _trust(profile: Profile) -> Iterator[Hit]:
    if lookup(profile.args, "trust-remote-code") is True:
        text = "runs Python from the model's repository"
        yield Hit(flag_path(profile, "trust-remote-code"), text, "Remove it, or silence this with the reason.")


def _share(profile: Profile) -> Iterator[Hit]:
    for name in adapter_of(profile).share_flags:
        value = lookup(profile.args, name)
        if isinstance(value, int | float) and not 0 < value <= 1:
            yield Hit(flag_path(profile, name), f"{value} is no share of the memory", "Write a number such as 0.8.")


def _total(profile: Profile) -> Iterator[Hit]:
    need = profile.memory
    known = [part for part in (need.weights_gib, need.kv_gib, need.overhead_gib) if part is not None]
    if sum(known) * GIB > BOX_BYTES * profile.nodes:
        boxes = "the box has" if profile.nodes == 1 else f"{profile.nodes} boxes have"
        text = f"adds up to {sum(known):.0f} GiB, and {boxes} {BOX_BYTES * profile.nodes / GIB:.1f}"
        yield Hit(("memory",), text, "Use a smaller checkpoint or KV cache; for two boxes give `nodes: 2`.")


_UNFILLED = re.compile(r"\$\{[A-Za-z_]\w*[^}]*\}|\$\(|^\$[A-Za-z_]\w*$")
"""Shell variables and arithmetic, which nothing fills in; a JSON schema's `$defs` and a pattern's `$` are neither."""


def _unfilled(profile: Profile) -> Iterator[Hit]:
    models = {name: ref.model_dump(exclude_none=True) for name, ref in profile.models.items()}
    mounts = [mount.model_dump() for mount in profile.mounts]
    parts = {"image": profile.image, "models": models, "mounts": mounts, "args": profile.args, "env": profile.env}
    for key, value in parts.items():
        for path, text in walk_strings((key,), value):
            if hit := _UNFILLED.search(text):
                yield Hit(path, f"has {hit[0]}, which nothing fills in: no shell reads it", "Write the value itself.")


def _later_part(profile: Profile) -> Iterator[Hit]:
    for name, ref in profile.models.items():
        if ref.path and (hit := re.search(r"-(?!00001)\d{5}-of-(\d{5}\.gguf)$", ref.path)):
            hint = f"Name the first: {ref.path[: hit.start()]}-00001-of-{hit[1]}."
            yield Hit(("models", name, "path"), "is a later part of its file, which llama.cpp refuses", hint)


def _devices(profile: Profile) -> Iterator[Hit]:
    copies = ("data-parallel-size", "dp-size", "dp")
    count = max(ways(profile), parse_token_count(lookup(profile.args, *copies)) or 1)
    if profile.gpu and profile.nodes == 1 and count > 1:
        key = next(filter(None, (flag_path(profile, *names) for names in (*WAYS, copies))), ("args",))
        text = f"asks for {count} GPUs, and one box has one"
        yield Hit(key, text, f"Remove it, or write `nodes: {count}` beside `args`.")


def _ranks(profile: Profile) -> Iterator[Hit]:
    if (count := ways(profile)) != profile.nodes and adapter_of(profile).parallel_flags:
        key = next(filter(None, (flag_path(profile, *names) for names in WAYS)), ("nodes",))
        text = f"splits the model in {count}, and {profile.nodes} boxes have one GPU each"
        fix = f"Make tensor times pipeline parallel size {profile.nodes}, or write `nodes: {count}`."
        yield Hit(key, text, f"{fix} For several numbers of nodes `parallel: {{tp: [2, 4]}}` has a size for each.")


def _padded(profile: Profile) -> Iterator[Hit]:
    key = flag_path(profile, *WAYS[0])
    size = profile.args[str(key[1])] if key else 1
    if isinstance(size, int) and size & (size - 1) and profile.engine in (EngineKind.VLLM, EngineKind.SGLANG):
        text = f"splits attention heads in {size}, which works only where this image pads them for this model"
        yield Hit(
            key or (), text, f"Use `pipeline-parallel-size: {size}`, or silence `padded-ranks` with who has run it."
        )


REQUEST_KEYS = (
    "temperature", "top_p", "top_k", "min_p", "typical_p", "max_tokens", "max_completion_tokens", "max_output_tokens",
    "min_tokens", "n", "best_of", "seed", "stop", "stop_token_ids", "stop_sequences", "presence_penalty",
    "frequency_penalty", "repetition_penalty", "repeat_penalty", "repeat_last_n", "length_penalty", "logit_bias",
    "logprobs", "top_logprobs", "prompt_logprobs", "response_format", "tools", "tool_choice", "parallel_tool_calls",
    "reasoning", "reasoning_effort", "reasoning_format", "thinking", "thinking_budget", "chat_template_kwargs",
    "chat_template", "include_reasoning", "stream_options", "user", "metadata", "store", "service_tier", "priority",
    "ignore_eos", "skip_special_tokens", "spaces_between_special_tokens", "include_stop_str_in_output",
    "add_generation_prompt", "continue_final_message", "echo", "structured_outputs", "guided_json", "guided_regex",
    "guided_choice", "guided_grammar", "json_schema", "regex", "ebnf", "grammar", "lora_path", "cache_prompt",
    "id_slot", "n_predict", "n_probs", "mirostat", "mirostat_tau", "mirostat_eta", "dynatemp_range",
    "dynatemp_exponent", "xtc_probability", "xtc_threshold", "dry_multiplier", "dry_base", "dry_allowed_length",
    "samplers", "timings_per_token", "return_progress", "verbosity", "text", "truncation", "include", "instructions",
    "system", "voice", "speed", "dimensions", "encoding_format", "size", "quality", "language", "mm_processor_kwargs",
)  # fmt: skip
"""Keys of requests that servers take: OpenAI's and Anthropic's API, vLLM 0.32, SGLang 0.5, llama.cpp 2026."""
_NUMBERS = REQUEST_KEYS[: REQUEST_KEYS.index("stop")] + tuple(key for key in REQUEST_KEYS if key.endswith("_penalty"))


def _request_keys(profile: Profile) -> Iterator[Hit]:
    given: list[tuple[KeyPath, str, object]] = [
        (("request", key), key, value) for key, value in profile.request.items()
    ]
    given += [(("request_set", key), key, value) for key, value in profile.request_set.items()]
    given += [(("modes", mode, key), key, value) for mode, keys in profile.modes.items() for key, value in keys.items()]
    for path, key, value in given:
        if key in _NUMBERS and isinstance(value, str | bool):
            yield Hit(path, "is a text, and every server wants a number", "Write a number.")
        close = [] if key in REQUEST_KEYS else get_close_matches(key, REQUEST_KEYS, n=1, cutoff=0.8)
        if close:
            yield Hit(path, "is no key that a server is known to take", f"Did you mean {close[0]}?")


def _ipc(profile: Profile) -> Iterator[Hit]:
    if path := flag_path(profile, "ipc", "shm-size"):
        text = "podman's, not the engine's; podman refuses --ipc=host together with --shm-size"
        yield Hit(path, text, "Remove it; shared memory is `shm_size: 8g`, beside args.")


def _restart(profile: Profile) -> Iterator[Hit]:
    if path := flag_path(profile, "restart"):
        yield Hit(path, "a restart policy would start an engine behind sparkdash's back", "Remove it.")


def _runtime(profile: Profile) -> Iterator[Hit]:
    for name in RUNTIME_FLAGS:
        if path := flag_path(profile, name):
            yield Hit(
                path, "is a flag of podman or docker, not of the engine", "Remove it: sparkdash sets the container up."
            )


def _arch(profile: Profile) -> Iterator[Hit]:
    if profile.image and FOREIGN.search(profile.image):
        yield Hit(("image",), "is not for arm64, which a Spark is", "Name an image built for linux/arm64.")


def _unpinned(profile: Profile) -> Iterator[Hit]:
    image = profile.image or ""
    if not image or "@sha256:" in image or image.startswith("localhost/"):
        return  # what was built here changes only when its owner builds it again
    tag = image.rsplit("/", 1)[-1].partition(":")[2] or "latest"
    if re.split(r"[-_.]", tag)[-1] in MOVING or tag.split("-", 1)[0] in MOVING:
        yield Hit(("image",), f"the tag {tag!r} moves", "Pin it: `image: name@sha256:…` (`podman image inspect`).")


def _keeps_nothing(profile: Profile) -> Iterator[Hit]:
    if profile.keep_kv and not adapter_of(profile).keeps_kv(profile):
        hint = "Remove it: on one box llama.cpp does, without LoRA adapters, and vLLM from 0.32 on."
        yield Hit(("keep_kv",), "its engine keeps no conversations", hint)


def _link(profile: Profile) -> Iterator[Hit]:
    for name in LINK_VARIABLES:
        if "{" not in profile.env.get(name, "{"):
            text = "is one name for all boxes, and names of interfaces differ from box to box"
            yield Hit(("env", name), text, _found_at_start(name))


def _gid(profile: Profile) -> Iterator[Hit]:
    if "{" not in profile.env.get(GID_INDEX, "{"):
        text = "is one index for all boxes; it is 3 on most and 5 on some"
        yield Hit(("env", GID_INDEX), text, _found_at_start(GID_INDEX))


def _found_at_start(name: str) -> str:
    return f"Remove it: sparkdash finds it on each box. To set it on one, write `env_by_node: {{NODE: {{{name}: …}}}}`."


def _address(profile: Profile) -> Iterator[Hit]:
    for name in ADDRESSES:
        if name in profile.env:
            yield Hit(
                ("env", name), "gives all boxes one address", "Remove it: sparkdash sets each box's own at a start."
            )


def _sockets(profile: Profile) -> Iterator[Hit]:
    for path, name, value in variables(profile):
        if SOCKETS.get(name) == value.strip().lower():
            text = "keeps NCCL off RDMA, and each step waits longer for the link"
            yield Hit(path, text, "Remove it: sparkdash turns RDMA on where both boxes have it.")


FLAG_RULES = tuple(
    Rule(name, level, about, FLAG_EVIDENCE, _finder(fault), yields=True)
    for name, level, fault, about in (
        (UNKNOWN, Severity.ERROR, FlagFault.UNKNOWN, "a flag that this version of the engine does not have"),
        (
            "flag-value",
            Severity.ERROR,
            FlagFault.VALUE,
            "a value of the wrong type, outside the range, or none of the choices",
        ),
        ("flag-twice", Severity.WARNING, FlagFault.TWICE, "two spellings of one flag"),
        ("flag-deprecated", Severity.WARNING, FlagFault.DEPRECATED, "a flag that the engine will drop"),
    )
)
FLAG_RULE_NAMES = frozenset(rule.name for rule in FLAG_RULES)


def refused_flag(profile: Profile) -> Hit | None:
    """Find a flag that the engine is sure to refuse; None without one, or where its rule is silenced."""
    hits = (hit for rule in FLAG_RULES if rule.name not in profile.silence for hit in rule.find(profile))
    return next((hit for hit in hits if hit.level is Severity.ERROR), None)


LITERAL = "secret-literal"
_KEYS = {
    "env": is_secret_variable, "env_by_node": is_secret_variable, "args": is_secret_flag, "command": never,
    "starter": never, "request": never, "request_set": never, "modes": never,
}  # fmt: skip
"""Parts of a profile that reach an engine or a client, each with the test that marks a name as secret."""


def secret_at(profile: Profile) -> str | None:
    """Find the first secret in the profile, as `env.HF_TOKEN`; None without one, or where silenced."""
    if LITERAL in profile.silence:
        return None
    return next((".".join(map(str, hit.path)) for hit in _secrets(profile)), None)


def redact_profile(profile: Profile) -> Profile:
    """Mask every secret in the profile, for other readers, silenced or not."""
    masks = {key: masked_values(getattr(profile, key), by_name) for key, by_name in _KEYS.items()}
    return profile.replace(**masks)


def _secrets(profile: Profile) -> Iterator[Hit]:
    for key, by_name in _KEYS.items():
        for path, text in walk_strings((key,), getattr(profile, key)):
            name = next((part for part in reversed(path[1:]) if isinstance(part, str)), "")
            if is_secret(text, name, by_name):
                variable = path[-1] if path[0] in ("env", "env_by_node") else "NAME"
                hint = f"Write `env_from: [{variable}]`, set it in the daemon's environment, and revoke this one."
                yield Hit(path, "looks like a secret", hint)


def _error(
    name: str, about: str, evidence: str, find: Callable[[Profile], Iterator[Hit]], always: bool = False
) -> Rule:
    return Rule(name, Severity.ERROR, about, evidence, find, always=always)


def _warning(name: str, about: str, evidence: str, find: Callable[[Profile], Iterator[Hit]]) -> Rule:
    return Rule(name, Severity.WARNING, about, evidence, find)


def _on_the_host(profile: Profile) -> Iterator[Hit]:
    if profile.starter:
        yield Hit(("starter",), "runs on this box as the daemon's user, in no container", "Read each command first.")


_GENERAL = (
    *FLAG_RULES,
    _warning(
        "starter-on-host",
        "commands of a profile run outside any container",
        "docs/swaps.md, Another starter",
        _on_the_host,
    ),
    _warning(
        "trust-remote-code",
        "code from a model's repository runs in the engine",
        "vLLM knows the architectures of the shipped profiles itself",
        _trust,
    ),
    _error(
        "no-share-of-memory",
        "a share of memory that is not above 0 and at most 1",
        "a fraction by its help text: SGLang 0.5.23, server_args.py; TensorRT-LLM 1.3.0, commands/serve.py",
        _share,
    ),
    _error("more-than-box", "a need larger than the memory", "MemTotal 121.69 GiB: nvitop PR#208", _total),
    _error("ipc-and-shm", "--ipc=host with --shm-size", "exit code 125 from podman 4.3.1; docker accepts it", _ipc),
    _error("restart-policy", "a container that restarts by itself", "two engines then meet in one memory", _restart),
    _error("runtime-flag", "a flag of the container runtime among the engine's", "copied recipes", _runtime),
    _error(
        "unfilled-variable",
        "a shell's variable where no shell reads",
        "podman and the engines take such text literally",
        _unfilled,
    ),
    _error(
        "later-part",
        "weights named by a part that is not their first",
        "llama.cpp, llama-model-loader.cpp: model must be loaded with the first split",
        _later_part,
    ),
    _error(
        "more-gpus-than-boxes",
        "more devices than the boxes of the profile have",
        "a DGX Spark has one GPU; vLLM and SGLang end at once",
        _devices,
    ),
    _warning(
        "request-key",
        "a misspelt key of requests, which servers pass over in silence, or no number where they want one",
        "OpenAI's API and the engines' own request models",
        _request_keys,
    ),
    _error("image-arch", "an image that is not arm64", "a GB10 is aarch64", _arch),
    _warning(
        "unpinned-image",
        "an image that is another one tomorrow",
        "flags are image-specific: vLLM blog, 2026-06-01",
        _unpinned,
    ),
    _warning(
        "keep-kv-ignored",
        "conversations that are not kept",
        "only llama-server's slots are saved: docs/swaps.md",
        _keeps_nothing,
    ),
    _error(
        "ranks-mismatch",
        "other ranks than boxes",
        "a Spark has one GPU; vLLM and SGLang start one rank on each",
        on_several_nodes(_ranks),
    ),
    _warning(
        "padded-ranks",
        "tensor parallel over three boxes",
        "vLLM refuses heads that 3 does not divide; a fork that divided them wrote fluent wrong text: "
        "colonel-otto/3x-dgx-spark-mesh-deepseek-v4-0731-flash@15abf21",
        on_several_nodes(_padded),
    ),
    _warning(
        "pinned-link",
        "one interface or RDMA device named for all boxes",
        "sparkrun@0041b8f finds them on each box, as names differ",
        on_several_nodes(_link),
    ),
    _warning(
        "pinned-gid-index",
        "one GID index for all boxes",
        "sparkrun@0041b8f reads it on each box; 5 instead of 3 in EXL3#47",
        on_several_nodes(_gid),
    ),
    _error(
        "pinned-address",
        "one address for all boxes",
        "dgx-spark-playbooks@0db7c14, nvidia/vllm, sets VLLM_HOST_IP to each box's own",
        on_several_nodes(_address),
    ),
    _warning(
        "nccl-without-rdma",
        "NCCL kept off RDMA",
        "sparkrun@0041b8f sets NCCL_IB_DISABLE=0; sockets are a silent loss: vllm#42075",
        on_several_nodes(_sockets),
    ),
    _error(LITERAL, "a token in a file", "argv, labels and logs are visible to others", _secrets, always=True),
)


SILENCE = "silence"
"""Name of the finding about a wrong `silence:`; it cannot be silenced itself."""
RULES: dict[str, Rule] = {
    rule.name: rule for rules in (_GENERAL, *(one.rules() for one in all_adapters())) for rule in rules
}


@dataclass(frozen=True, slots=True)
class RuleFinding:
    """Violation of a rule at one place. `profiles` are all that inherit it."""

    rule: str
    level: Severity
    problem: ProfileProblem
    profiles: tuple[str, ...]

    def __str__(self) -> str:
        """`file:line: key: message. hint [rule]`."""
        return f"{self.problem} [{self.rule}]"


def findings(catalog: Catalog) -> tuple[RuleFinding, ...]:
    """Apply all rules to the catalog's profiles; sorted by file and line, inherited violations once."""
    found: dict[tuple[str, Severity, ProfileProblem], list[str]] = {}
    for name, profile in catalog.profiles.items():
        for key in dict.fromkeys(key for one in profile.launches for key in _judge(one, catalog.problem_at[name])):
            found.setdefault(key, []).append(name)
    told = [RuleFinding(*key, tuple(dict.fromkeys(names))) for key, names in found.items()]
    return tuple(sorted(told, key=lambda one: (natural(one.problem.file), one.problem.line or 0, one.rule)))


def _judge(profile: Profile, problem_at: ProblemAt) -> Iterator[tuple[str, Severity, ProfileProblem]]:
    for rule, hit in _hits(profile):
        yield rule.name, _level(rule, hit), problem_at(hit.path, hit.message, hit.hint)
    for name, reason in profile.silence.items():
        if name not in RULES:
            close = nearest(name, RULES)
            hint = f"Did you mean {close[0]!r}?" if close else "`sparkdash profiles check --rules` lists them."
            yield SILENCE, Severity.ERROR, problem_at((SILENCE, name), "there is no such rule", hint)
        elif not reason.strip():
            yield SILENCE, Severity.ERROR, problem_at((SILENCE, name), "gives no reason", "Say why in a few words.")


def _hits(profile: Profile) -> list[tuple[Rule, Hit]]:
    """Find violations; a rule that yields stays silent where another one names the same place."""
    rules = (*_GENERAL, *adapter_of(profile).rules())
    applied = filter(lambda rule: rule.name not in profile.silence and rule.applies(profile), rules)
    found = [(rule, hit) for rule in applied for hit in rule.find(profile)]
    named = {(hit.path, _level(rule, hit)) for rule, hit in found if not rule.yields}

    def is_named(rule: Rule, hit: Hit) -> bool:
        return not named.isdisjoint({(hit.path, Severity.ERROR), (hit.path, _level(rule, hit))})

    return [(rule, hit) for rule, hit in found if not (rule.yields and is_named(rule, hit))]


def _level(rule: Rule, hit: Hit) -> Severity:
    return hit.level or rule.level
