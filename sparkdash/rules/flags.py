"""Rules about engine flags and variables: refused, dead, or slow.

Owns: what is known of vLLM's, SGLang's and llama.cpp's switches. Which vLLM has which flag is in
engines.dialects.vllm_flags.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator

from sparkdash.domain.profile import EngineKind, Profile
from sparkdash.engines.argv import lookup, parse_token_count
from sparkdash.engines.vllm import flags
from sparkdash.rules.rule import Hit, Rule, Severity, flag_path

WHEELS = "read in the argument parsers of vLLM 0.16.0 0.17.0 0.18.0 0.19.0 0.20.0 0.22.1 0.26.0 0.29.0 0.33.0"

DEAD_ENV = {
    "VLLM_USE_FLASHINFER_MOE_FP4": "`moe-backend: flashinfer_cutlass` under args (or cutlass, marlin)",
    "VLLM_MXFP4_USE_MARLIN": "`moe-backend: marlin` under args",
    "VLLM_NVFP4_GEMM_BACKEND": "`linear-backend: …` under args",
}
"""Variables known up to 0.22.1 and gone by 0.26, with their replacements."""

MAX_BATCHED_TOKENS = 32768
CAPTURE_CAP = 512
"""vLLM captures min(max_num_seqs * q_len * 2, 512) by itself."""

_VLLM = (EngineKind.VLLM,)


def _speculative(profile: Profile) -> Iterator[Hit]:
    wrong = flags.never_known(profile)
    if wrong:
        text = f"no vLLM since 0.16 has {', '.join(wrong)}"
        yield Hit(flag_path(profile, *wrong) or (), text, f"Write `{flags.rewrite(profile)}`.")


def _too_new(profile: Profile) -> Iterator[Hit]:
    for name in flags.too_new(profile):
        yield Hit(flag_path(profile, name) or (), f"vLLM {profile.engine_version} does not have it yet", _absent())


def _removed(profile: Profile) -> Iterator[Hit]:
    for name in flags.removed(profile):
        yield Hit(flag_path(profile, name) or (), f"vLLM {profile.engine_version} no longer has it", _absent())


def _absent() -> str:
    return "Remove it, or correct `engine_version` if the image holds another one."


def _dead_env(profile: Profile) -> Iterator[Hit]:
    for name, instead in DEAD_ENV.items():
        if name in profile.env:
            text = f"vLLM {profile.engine_version} ignores it"
            yield Hit(("env", name), text, f"Write {instead} and remove it.")


def _old_env(profile: Profile) -> Iterator[Hit]:
    if "VLLM_ATTENTION_BACKEND" in profile.env:
        value = profile.env["VLLM_ATTENTION_BACKEND"]
        yield Hit(
            ("env", "VLLM_ATTENTION_BACKEND"), "vLLM ignores it", f"Write `attention-backend: {value}` under args."
        )


def _eager(profile: Profile) -> Iterator[Hit]:
    if lookup(profile.args, "enforce-eager") is True:
        yield Hit(flag_path(profile, "enforce-eager") or (), "decodes at less than half the speed", "Remove it.")


def _capture(profile: Profile) -> Iterator[Hit]:
    size = parse_token_count(lookup(profile.args, "max-cudagraph-capture-size"))
    seqs = parse_token_count(lookup(profile.args, "max-num-seqs"))
    if not size or not seqs:
        return
    useful = min(seqs * (1 + draft_tokens(profile)) * 2, CAPTURE_CAP)
    if size > useful:
        text = f"{size} captures more than {seqs} sequences can use"
        yield Hit(flag_path(profile, "max-cudagraph-capture-size") or (), text, f"Write {useful}, or remove it.")


def _batched(profile: Profile) -> Iterator[Hit]:
    tokens = parse_token_count(lookup(profile.args, "max-num-batched-tokens"))
    if tokens and tokens > MAX_BATCHED_TOKENS:
        path = flag_path(profile, "max-num-batched-tokens") or ()
        yield Hit(path, f"{tokens} tokens in one step can take the whole box down", "Write 8192; never above 32768.")


def _trust(profile: Profile) -> Iterator[Hit]:
    if lookup(profile.args, "trust-remote-code") is True:
        text = "runs Python from the model's repository"
        yield Hit(flag_path(profile, "trust-remote-code") or (), text, "Remove it, or silence this with the reason.")


def _mmap(profile: Profile) -> Iterator[Hit]:
    mode = str(lookup(profile.args, "load-mode") or "")
    if lookup(profile.args, "no-mmap") is False or lookup(profile.args, "mmap") is True or mode.startswith("mmap"):
        path = flag_path(profile, "load-mode", "mmap", "no-mmap") or ()
        yield Hit(
            path, "mapped files load ten times slower on a Spark", "Remove it: sparkdash makes llama.cpp read them."
        )


def _metrics(profile: Profile) -> Iterator[Hit]:
    if lookup(profile.args, "enable-metrics") is False:
        path = flag_path(profile, "enable-metrics") or ()
        yield Hit(path, "leaves the dashboard without rates", "Remove it: sparkdash passes --enable-metrics.")


def draft_tokens(profile: Profile) -> int:
    """Return the tokens that vLLM drafts per step; 0 without speculation."""
    config = lookup(profile.args, "speculative-config")
    depth = config.get("num_speculative_tokens") if isinstance(config, dict) else lookup(profile.args, "spec-tokens")
    return depth if isinstance(depth, int) else 0


RULES = (
    Rule(
        "speculative-flags",
        Severity.ERROR,
        "speculation is one JSON value, --speculative-config",
        WHEELS,
        _speculative,
        _VLLM,
    ),
    Rule(
        "flag-too-new",
        Severity.ERROR,
        "a flag such as moe-backend (from 0.17) that this vLLM lacks",
        WHEELS,
        _too_new,
        _VLLM,
    ),
    Rule(
        "flag-removed",
        Severity.ERROR,
        "a flag such as swap-space (until 0.17) that this vLLM lost",
        WHEELS,
        _removed,
        _VLLM,
    ),
    Rule(
        "dead-env",
        Severity.WARNING,
        "a VLLM_* variable that this vLLM no longer reads",
        "known in vLLM 0.22.1, unknown in 0.26.0, which only warns of unknown ones",
        _dead_env,
        _VLLM,
        since=(0, 26),
    ),
    Rule(
        "dead-attention-env",
        Severity.WARNING,
        "VLLM_ATTENTION_BACKEND, which became a flag",
        "absent from vLLM 0.16.0 and every newer one",
        _old_env,
        _VLLM,
        since=(0, 16),
    ),
    Rule(
        "enforce-eager",
        Severity.WARNING,
        "no CUDA graphs",
        "gpt-oss-120b: 59 tok/s with, 26 without (-55 %): published measurements, vLLM 0.19.0, May 2026",
        _eager,
        _VLLM,
    ),
    Rule(
        "cudagraph-capture-size",
        Severity.WARNING,
        "capture beyond max-num-seqs x tokens per step x 2 costs time and memory",
        "vLLM's own default is min(that, 512)",
        _capture,
        _VLLM,
    ),
    Rule(
        "max-num-batched-tokens",
        Severity.ERROR,
        "too many tokens in one step",
        "65536 kills the box, 32768 does not: AEON-7/vllm-dflash#1",
        _batched,
        _VLLM,
    ),
    Rule(
        "trust-remote-code",
        Severity.WARNING,
        "code from a model's repository runs in the engine",
        "vLLM knows the architectures of the shipped profiles itself",
        _trust,
    ),
    Rule(
        "llamacpp-mmap",
        Severity.WARNING,
        "llama.cpp must not map its files",
        "22 s without mapping, 224 s with: llama.cpp PR#27742",
        _mmap,
        (EngineKind.LLAMACPP,),
    ),
    Rule(
        "sglang-metrics",
        Severity.WARNING,
        "SGLang's /metrics is off unless asked for",
        "SGLang's server arguments: --enable-metrics",
        _metrics,
        (EngineKind.SGLANG,),
    ),
)
