"""Rules about speculative decoding in vLLM.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator

from sparkdash.domain.profile import EngineKind, Profile
from sparkdash.engines.argv import lookup, parse_token_count
from sparkdash.rules.flags import draft_tokens
from sparkdash.rules.rule import Hit, Rule, Severity, flag_path

MAX_DRAFTS = 224
"""Limit of draft tokens in flight (K times sequences), beyond which a Spark ran out of memory."""

DEFAULT_SEQS = 256
"""Default of vLLM's max-num-seqs."""

WITHOUT_MTP = ("qwen3-30b", "qwen3-coder-30b", "qwen3-235b")
"""Names of qwen3_moe checkpoints, which have no MTP head."""

HYBRID = ("qwen3.5", "qwen3.6", "qwen3-next")
"""Names of models that mix gated-delta-net layers with attention."""

_VLLM = (EngineKind.VLLM,)


def speculation_method(profile: Profile) -> str:
    """Return the speculation method, "" without one."""
    config = lookup(profile.args, "speculative-config")
    found = config.get("method") if isinstance(config, dict) else lookup(profile.args, "spec-method")
    return str(found or "")


def _dflash(profile: Profile) -> Iterator[Hit]:
    if speculation_method(profile) == "dflash":
        yield Hit(
            _path(profile), f"vLLM {profile.engine_version} has no dflash", "Use 0.20 or newer, or method eagle3."
        )


def _headless(profile: Profile) -> Iterator[Hit]:
    if speculation_method(profile).endswith("mtp") and _is(profile, WITHOUT_MTP):
        yield Hit(_path(profile), "the model has no MTP head, and vLLM refuses", "Use eagle3 with a drafter instead.")


def _turboquant(profile: Profile) -> Iterator[Hit]:
    dtype = str(lookup(profile.args, "kv-cache-dtype") or "")
    if dtype.startswith("turboquant") and speculation_method(profile).endswith("mtp") and _is(profile, HYBRID):
        path = flag_path(profile, "kv-cache-dtype") or ()
        yield Hit(path, "TurboQuant with MTP is broken on hybrid models", "Write fp8, or drop the speculation.")


def _many(profile: Profile) -> Iterator[Hit]:
    depth = draft_tokens(profile)
    seqs = parse_token_count(lookup(profile.args, "max-num-seqs")) or DEFAULT_SEQS
    if depth * seqs > MAX_DRAFTS:
        text = f"{depth} drafted tokens times {seqs} sequences is more than {MAX_DRAFTS}"
        path = flag_path(profile, "max-num-seqs") or _path(profile)
        yield Hit(path, text, f"Write `max-num-seqs: {max(1, MAX_DRAFTS // depth)}` or less.")


def _alias(profile: Profile) -> Iterator[Hit]:
    name = speculation_method(profile)
    if name.endswith("_mtp"):
        yield Hit(_path(profile), f"method {name} is an old name of mtp", "Write `method: mtp`.")


def _is(profile: Profile, names: tuple[str, ...]) -> bool:
    target = profile.models.get("target")
    return target is not None and any(name in target.ref.lower() for name in names)


def _path(profile: Profile) -> tuple[str | int, ...]:
    return flag_path(profile, "speculative-config", "spec-method", "spec-tokens") or ("args",)


RULES = (
    Rule(
        "dflash-too-new",
        Severity.ERROR,
        "DFlash before 0.20",
        "speculation methods in vLLM 0.19.0 and 0.20.0",
        _dflash,
        _VLLM,
        before=(0, 20),
    ),
    Rule(
        "mtp-without-head",
        Severity.ERROR,
        "MTP on a model without an MTP head",
        "vLLM raises for qwen3_moe targets",
        _headless,
        _VLLM,
    ),
    Rule(
        "turboquant-mtp",
        Severity.ERROR,
        "TurboQuant KV with MTP on a hybrid model",
        "vllm-project/vllm#53180, #40094, #50709",
        _turboquant,
        _VLLM,
    ),
    Rule(
        "too-many-drafts",
        Severity.WARNING,
        "more drafted tokens in flight than the memory takes",
        "out of memory beyond about 224: Blackwellboy/model-serving-minefield trap 98",
        _many,
        _VLLM,
    ),
    Rule(
        "mtp-old-name",
        Severity.WARNING,
        "a method such as qwen3_next_mtp, deprecated for mtp",
        "vLLM says so at the start: config/speculative.py in 0.32.0, logs of 0.19.0 and 0.24.0",
        _alias,
        _VLLM,
        since=(0, 19),
    ),
)
