"""Terms of a launch's estimated memory: weights, drafter, KV cache, a share of the box. Pure."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from math import ceil
from typing import NamedTuple

from sparkdash.domain.memory import Term
from sparkdash.domain.profile import ArgValue, Profile, placeholders
from sparkdash.domain.weights import BF16_BITS, Unread, WeightFacts
from sparkdash.engines.argv import fill_placeholders, lookup, parse_size, parse_token_count
from sparkdash.engines.nodes import ways
from sparkdash.units import GIB, gib, tokens

Facts = Mapping[str, WeightFacts | Unread]
"""Facts about the profile's models by role (`target`, `drafter`, …); an absent role counts as unread."""

BOX_BYTES = 127_600_748 * 1024
"""MemTotal of a DGX Spark, 121.69 GiB (XuehaiPan/nvitop PR#208); other units report up to 2 GiB less."""
OVERHEAD_BYTES = 7 * GIB
"""Memory beyond weights and KV cache: 5.4 to 6.7 GiB of vLLM 0.28 on a GB10 (llamastash#80, #81), rounded up."""
TARGET = "target"
NO_TARGET = Unread(reason="no weights were given for models.target")

GGML_BITS = {
    "f32": 32.0, "f16": 16.0, "bf16": 16.0, "q8_0": 8.5, "q5_1": 6.0, "q5_0": 5.5, "q4_1": 5.0, "q4_0": 4.5,
    "iq4_nl": 4.5,
}  # fmt: skip
"""Cache types of llama.cpp, block scales included (ggml-common.h: q8_0 is 34 bytes for 32 elements)."""
_OFF = frozenset({"", "0", "-1", "false", "no"})
SIXTEEN = ("bfloat16", "bf16", "float16", "half")


class Drafting(NamedTuple):
    """Speculation of a profile: the method, and the drafting model if it is a separate one."""

    method: str = ""
    model: str | None = None


class CacheWidth(NamedTuple):
    """Bits of a key's and of a value's element in the KV cache."""

    key: float
    value: float


def share_term(flag: str, part: float | None, box: int | None) -> Term:
    """Term of a share of the box that the engine takes whole."""
    if part is None or box is None:
        missing = f"--{flag} is no share of 0 to 1" if part is None else "how much memory the box has is not known"
        return Term(name="utilization", source=missing)
    return Term(name="utilization", bytes=ceil(box * part), source=f"--{flag} {part:g} of {gib(box)}, taken whole")


def loaded_terms(profile: Profile, facts: Facts, drafting: Drafting) -> Iterator[Term]:
    yield weights_term(profile, facts, mtp="mtp" in drafting.method)
    if drafting.model is None:
        return
    filled = fill_placeholders(drafting.model, profile.models)
    roles = placeholders(drafting.model) | {role for role, ref in profile.models.items() if ref.ref == filled}
    if roles or profile.memory.weights_gib is None:  # declared weights hold a drafter that is no model of its own
        yield _drafter(profile, facts, drafting.model, roles)


def weights_term(profile: Profile, facts: Facts, *, mtp: bool) -> Term:
    """Term of the target's weights on one box. `mtp`: its own MTP layers are loaded too."""
    target = facts.get(TARGET, NO_TARGET)
    if isinstance(target, Unread):
        return Term(name="weights", source=target.reason)
    size, why = target.bytes.total, f"{target.format} headers of {target.origin}"
    if target.mtp and not mtp:
        size, why = size - target.bytes.draft, f"{why}, less the MTP layers, which nothing drafts with"
    if profile.nodes == 1:
        return Term(name="weights", bytes=size, source=why)
    if ways(profile) < profile.nodes:
        return Term(name="weights", source=f"how the weights are spread over {profile.nodes} boxes is not told")
    return Term(name="weights", bytes=ceil(size / profile.nodes), source=f"{why}, over {profile.nodes} boxes")


def _drafter(profile: Profile, facts: Facts, model: str, roles: set[str]) -> Term:
    found = next((facts[role] for role in sorted(roles) if role in facts), None)
    if isinstance(found, WeightFacts):
        source = f"{found.format} headers of {found.origin}"
        return Term(name="drafter", bytes=found.bytes.total, source=source)
    outside = f"{fill_placeholders(model, profile.models)} is not among the profile's models"
    return Term(name="drafter", source=found.reason if found else outside)


def dtype_width(profile: Profile, target: WeightFacts) -> CacheWidth | None:
    """Width of the cache by `--kv-cache-dtype`; None for a type of unknown size, as those below 8 bits with scales."""
    name = str(lookup(profile.args, "kv-cache-dtype") or "auto").lower()
    if name == "auto":
        name = target.kv_dtype or SIXTEEN[0]
    if name.startswith("fp8"):
        return CacheWidth(8.0, 8.0)
    return CacheWidth(BF16_BITS, BF16_BITS) if name in SIXTEEN else None


def cache_term(
    profile: Profile,
    facts: Facts,
    held: int,
    why: str,
    *,
    width_of: Callable[[Profile, WeightFacts], CacheWidth | None] = dtype_width,
    step: int | None = None,
) -> Term:
    """Term of the KV cache for `held` tokens in all; `step` tokens are computed at once, by default as flags say."""
    target = facts.get(TARGET, NO_TARGET)
    if isinstance(target, Unread):
        return Term(name="kv", source=f"{why}, but the bytes of a token are not known: {target.reason}")
    width = width_of(profile, target)
    if width is None:
        return Term(name="kv", source=f"{why}, but not how many bits an element of this KV cache's dtype has")
    if step is None:
        step = parse_token_count(lookup(profile.args, "max-num-batched-tokens", "chunked-prefill-size")) or 0
    sequences = parse_token_count(lookup(profile.args, "max-num-seqs", "max-running-requests", "parallel", "np")) or 1
    size = target.kv_bytes(held, sequences, *width, step=step)
    if size is None:
        return Term(name="kv", source=f"{why}, but not what the layers of {target.architecture} keep of a token")
    boxes = f" over {profile.nodes} boxes" if profile.nodes > 1 else ""
    kinds = " + ".join(f"{layers.layers} {layers.kind.value}" for layers in target.kv)
    widths = "/".join(f"{one:g}" for one in dict.fromkeys(width))
    source = f"{why}: {tokens(held)} tokens, {widths} bits, {kinds} layers{boxes}"
    return Term(name="kv", bytes=ceil(size / profile.nodes), source=source)


def held_by_variables(profile: Profile, units: Mapping[str, int | None]) -> Iterator[tuple[str, int | None]]:
    """Yield the profile's variables that take memory, with the bytes; None where the amount is not known."""
    for name in [name for name in units if name in profile.env or name in profile.env_from]:
        value = profile.env.get(name, "").strip()
        if name not in profile.env or value.lower() not in _OFF:
            yield name, _held(value, units[name])


def held_by_flags(args: Mapping[str, ArgValue], units: Mapping[str, int]) -> Iterator[tuple[str, int | None]]:
    """Yield the flags that take memory, with the bytes; None where the amount is not known."""
    for name, unit in units.items():
        if (value := lookup(args, name)) is not None and str(value).lower() not in ("0", "0.0", "false"):
            yield f"--{name}", _held(str(value), unit)


def _held(value: str, unit: int | None) -> int | None:
    if unit and value.replace(".", "", 1).isdecimal():
        return int(float(value) * unit)
    return parse_size(value.upper().removesuffix("B")) if unit else None


def add_held(overhead: Term, held: Iterable[tuple[str, int | None]]) -> Term:
    """Add to the overhead what flags and variables take; it is unknown where an amount is."""
    for name, size in held:
        if size is None or overhead.bytes is None:
            why = f"how much memory {name} takes is not known; declare memory.overhead_gib"
            return Term(name="overhead", source=why)
        source = f"{overhead.source}; {name} takes {gib(size)}"
        overhead = Term(name="overhead", bytes=overhead.bytes + size, source=source)
    return overhead


def overhead_term(profile: Profile, *, measured: bool = False) -> Term:
    if not profile.gpu:
        return Term(name="overhead", source="not measured for engines on the CPU; declare memory.overhead_gib")
    source = "5.4 to 6.7 GiB on a GB10, rounded up: llamastash#80, #81"
    if not measured:
        source += f"; that was vLLM, {profile.engine} is taken for no more"
    return Term(name="overhead", bytes=OVERHEAD_BYTES, source=source)
