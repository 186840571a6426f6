"""Known mistakes in vLLM's profiles: flags and variables, memory, speculation, several nodes. Pure."""

from collections.abc import Iterator

from sparkdash.domain.profile import Profile
from sparkdash.engines.argv import lookup, parse_size, parse_token_count
from sparkdash.engines.memory_terms import BOX_BYTES
from sparkdash.engines.rule import Hit, Rule, Severity, flag_path, on_several_nodes, variables
from sparkdash.engines.start_stages import Lever
from sparkdash.units import GIB

DEAD_ENV = {
    "VLLM_USE_FLASHINFER_MOE_FP4": "`moe-backend: flashinfer_cutlass` under args (or cutlass, marlin)",
    "VLLM_MXFP4_USE_MARLIN": "`moe-backend: marlin` under args",
    "VLLM_NVFP4_GEMM_BACKEND": "`linear-backend: …` under args",
}
"""Variables known up to 0.22.1 and gone by 0.26, with their replacements."""
MAX_BATCHED_TOKENS = 32768
CAPTURE_CAP = 512
"""vLLM captures min(max_num_seqs * q_len * 2, 512) by itself."""
MAX_DRAFTS = 224
"""Limit of draft tokens in flight (K times sequences), beyond which a Spark ran out of memory."""
DEFAULT_SEQS = 256
"""Default of vLLM's max-num-seqs."""
WITHOUT_MTP = ("qwen3-30b", "qwen3-coder-30b", "qwen3-235b")
"""Names of qwen3_moe checkpoints, which have no MTP head."""
HYBRID = ("qwen3.5", "qwen3.6", "qwen3-next")
"""Names of models that mix gated-delta-net layers with attention."""
MOST_COMPILERS = 4
LEAST_STEP_S = 40
"""Shortest limit of a step that a healthy pair kept to; its first request takes the longest."""
MAPPED = (None, "auto", "safetensors")
"""Loaders that map the files, unless a strategy says otherwise."""
REFUSED_LOADS = ((False, "fastsafetensors"), (False, "instanttensor"))
"""Starts without io_uring of loaders that sparkring gives it; b12x does not even start without."""
STREAMER, STREAMER_LIMIT = "runai_streamer", "RUNAI_STREAMER_MEMORY_LIMIT"


def _dead_env(profile: Profile) -> Iterator[Hit]:
    for name, instead in DEAD_ENV.items():
        if name in profile.env:
            text = f"vLLM {profile.engine_version} ignores it"
            yield Hit(("env", name), text, f"Write {instead} and remove it.")


def _old_env(profile: Profile) -> Iterator[Hit]:
    name = "VLLM_ATTENTION_BACKEND"
    if name in profile.env:
        yield Hit(("env", name), "vLLM ignores it", f"Write `attention-backend: {profile.env[name]}` under args.")


def _eager(profile: Profile) -> Iterator[Hit]:
    if lookup(profile.args, "enforce-eager") is True:
        yield Hit(flag_path(profile, "enforce-eager"), "decodes at less than half the speed", "Remove it.")


def _capture(profile: Profile) -> Iterator[Hit]:
    size = parse_token_count(lookup(profile.args, "max-cudagraph-capture-size"))
    seqs = parse_token_count(lookup(profile.args, "max-num-seqs"))
    if not size or not seqs:
        return
    useful = min(seqs * (1 + _draft_tokens(profile)) * 2, CAPTURE_CAP)
    if size > useful:
        text = f"{size} captures more than {seqs} sequences can use"
        yield Hit(flag_path(profile, "max-cudagraph-capture-size"), text, f"Write {useful}, or remove it.")


def _captured_list(profile: Profile) -> Iterator[Hit]:
    sizes = lookup(profile.args, "cudagraph-capture-sizes")
    seqs = parse_token_count(lookup(profile.args, "max-num-seqs"))
    if not isinstance(sizes, list) or not seqs:
        return
    full = seqs * (1 + _draft_tokens(profile))
    if full <= CAPTURE_CAP and full not in sizes:
        text = f"lacks {full}, the size of a step with all {seqs} sequences"
        yield Hit(flag_path(profile, "cudagraph-capture-sizes"), text, f"Add {full}.")


def _batched(profile: Profile) -> Iterator[Hit]:
    tokens = parse_token_count(lookup(profile.args, "max-num-batched-tokens"))
    if tokens and tokens > MAX_BATCHED_TOKENS:
        text = f"{tokens} tokens in one step can take the whole box down"
        yield Hit(flag_path(profile, "max-num-batched-tokens"), text, "Write 8192; never above 32768.")


def _draft_tokens(profile: Profile) -> int:
    """Return the tokens that vLLM drafts per step; 0 without speculation."""
    config = lookup(profile.args, "speculative-config")
    depth = config.get("num_speculative_tokens") if isinstance(config, dict) else lookup(profile.args, "spec-tokens")
    return depth if isinstance(depth, int) else 0


def _utilization(profile: Profile) -> Iterator[Hit]:
    if profile.gpu and not flag_path(profile, "gpu-memory-utilization"):
        text = "gpu-memory-utilization is missing, and vLLM's default is more than a Spark has free"
        yield Hit(("args",), text, "Write `gpu-memory-utilization: 0.80` under args.")


def _high(profile: Profile) -> Iterator[Hit]:
    value = lookup(profile.args, "gpu-memory-utilization")
    if isinstance(value, int | float) and value > 0.90:
        text = f"{value} is more than a Spark has free"
        yield Hit(flag_path(profile, "gpu-memory-utilization"), text, "Write 0.85 or less.")


def _kv(profile: Profile) -> Iterator[Hit]:
    size = parse_size(lookup(profile.args, "kv-cache-memory-bytes"))
    if size is not None and size > BOX_BYTES:
        text = f"{size / GIB:.0f} GiB of KV cache, and a box has {BOX_BYTES / GIB:.1f}"
        yield Hit(flag_path(profile, "kv-cache-memory-bytes"), text, "Write `10G` for 10 GiB.")


def _small_unit(profile: Profile) -> Iterator[Hit]:
    value = lookup(profile.args, "kv-cache-memory-bytes")
    if isinstance(value, str) and value[-1:] in ("k", "m", "g", "t") and (size := parse_size(value)):
        text, hint = f"{value!r} counts in thousands: {size / GIB:.2f} GiB", f"Write `{_binary(value)}`"
        yield Hit(flag_path(profile, "kv-cache-memory-bytes"), text, f"{hint}, which counts in 1024s.")


def _binary(value: str) -> str:
    """Return the same size in 1024s without the fraction that vLLM would refuse: "1.5g" becomes "1536M"."""
    number, unit = float(value[:-1]), value[-1].upper()
    if number.is_integer():
        return f"{int(number)}{unit}"
    return str(round(number * 1024)) + {"K": "", "M": "K", "G": "M", "T": "G"}[unit]


def _fp8(profile: Profile) -> Iterator[Hit]:
    backend = lookup(profile.args, "attention-backend")
    dtype = str(lookup(profile.args, "kv-cache-dtype") or "")
    if str(backend).upper() != "FLASH_ATTN":
        return
    path = flag_path(profile, "attention-backend")
    if dtype.startswith("fp8"):
        yield Hit(path, "FLASH_ATTN has no fp8 KV cache on a GB10", "Write FLASHINFER or TRITON_ATTN.")
    elif any("gpt-oss" in ref.ref.lower() for ref in profile.models.values()):
        yield Hit(path, "FLASH_ATTN has no attention sinks on a GB10, which gpt-oss needs", "Write TRITON_ATTN.")


def _method(profile: Profile) -> str:
    config = lookup(profile.args, "speculative-config")
    found = config.get("method") if isinstance(config, dict) else lookup(profile.args, "spec-method")
    return str(found or "")


def _dflash(profile: Profile) -> Iterator[Hit]:
    if _method(profile) == "dflash":
        text = f"vLLM {profile.engine_version} has no dflash"
        yield Hit(_path(profile), text, "Use 0.20 or newer, or method eagle3.")


def _headless(profile: Profile) -> Iterator[Hit]:
    if _method(profile).endswith("mtp") and _is(profile, WITHOUT_MTP):
        yield Hit(_path(profile), "the model has no MTP head, and vLLM refuses", "Use eagle3 with a drafter instead.")


def _turboquant(profile: Profile) -> Iterator[Hit]:
    dtype = str(lookup(profile.args, "kv-cache-dtype") or "")
    if dtype.startswith("turboquant") and _method(profile).endswith("mtp") and _is(profile, HYBRID):
        path = flag_path(profile, "kv-cache-dtype")
        yield Hit(path, "TurboQuant with MTP is broken on hybrid models", "Write fp8, or drop the speculation.")


def _many(profile: Profile) -> Iterator[Hit]:
    depth = _draft_tokens(profile)
    seqs = parse_token_count(lookup(profile.args, "max-num-seqs")) or DEFAULT_SEQS
    if depth * seqs > MAX_DRAFTS:
        text = f"{depth} drafted tokens times {seqs} sequences is more than {MAX_DRAFTS}"
        path = flag_path(profile, "max-num-seqs") or _path(profile)
        yield Hit(path, text, f"Write `max-num-seqs: {max(1, MAX_DRAFTS // depth)}` or less.")


def _alias(profile: Profile) -> Iterator[Hit]:
    if (name := _method(profile)).endswith("_mtp"):
        yield Hit(_path(profile), f"method {name} is an old name of mtp", "Write `method: mtp`.")


def _is(profile: Profile, names: tuple[str, ...]) -> bool:
    target = profile.models.get("target")
    return target is not None and any(name in target.ref.lower() for name in names)


def _path(profile: Profile) -> tuple[str | int, ...]:
    return flag_path(profile, "speculative-config", "spec-method", "spec-tokens") or ("args",)


def _monitor(profile: Profile) -> Iterator[Hit]:
    if lookup(profile.args, "distributed-executor-backend") != "ray":
        return
    for path, name, value in variables(profile):
        if name == "RAY_memory_monitor_refresh_ms" and value.strip() != "0":
            text = "lets Ray kill at 95 % of a memory that the engine fills on purpose"
            yield Hit(path, text, "Remove it: sparkdash sets 0, and its own guard watches each box.")


def _step_limit(profile: Profile) -> Iterator[Hit]:
    for path, name, value in variables(profile):
        if name == "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS" and value.strip().isdecimal() and int(value) < LEAST_STEP_S:
            text = f"{value.strip()} s end the first request of a healthy pair"
            yield Hit(path, text, f"Write {LEAST_STEP_S} or more, or remove it (300).")


def _mapped(profile: Profile) -> Iterator[Hit]:
    loader, strategy = (lookup(profile.args, flag) for flag in ("load-format", "safetensors-load-strategy"))
    if profile.gpu and loader in MAPPED and strategy in (None, "lazy"):
        path = flag_path(profile, "load-format") or ("args",)
        text = "maps the weights' files, out of which a Spark copies 0.04 to 0.25 GB/s"
        yield Hit(path, text, "Write `safetensors-load-strategy: eager`, which reads them.")


def _compilers(profile: Profile) -> Iterator[Hit]:
    for path, name, value in variables(profile):
        if (
            name in ("MAX_JOBS", "FLASHINFER_NVCC_THREADS")
            and value.strip().isdecimal()
            and int(value) > MOST_COMPILERS
        ):
            text = f"{value.strip()} compilers at a first start take the memory that the weights need"
            yield Hit(path, text, f'Write "{MOST_COMPILERS}" or less.')


def _sleep(profile: Profile) -> Iterator[Hit]:
    if lookup(profile.args, "enable-sleep-mode") is True:
        text = "sleep gives nothing back on one memory, and waking took boxes down"
        yield Hit(flag_path(profile, "enable-sleep-mode"), text, "Remove it, or silence this for a discrete GPU.")


def _streamer(profile: Profile) -> Iterator[Hit]:
    path = flag_path(profile, "load-format")
    if path and lookup(profile.args, "load-format") == STREAMER and STREAMER_LIMIT not in profile.env:
        text = "reads ahead without a limit; one box ran out of memory at 18 % of the load"
        yield Hit(path, text, f'Add `env: {{{STREAMER_LIMIT}: "2147483648"}}`.')


def _no_io_uring(profile: Profile) -> Iterator[Hit]:
    if lookup(profile.args, "load-format") == "b12x" and profile.image and profile.security is None:
        text = "the loader b12x needs io_uring, which podman's default seccomp profile refuses"
        yield Hit(flag_path(profile, "load-format"), text, "Add `security: io_uring` to the profile.")


RULES = (
    Rule(
        "dead-env",
        Severity.WARNING,
        "a VLLM_* variable that this vLLM no longer reads",
        "known in vLLM 0.22.1, unknown in 0.26.0, which only warns of unknown ones",
        _dead_env,
        since=(0, 26),
    ),
    Rule(
        "dead-attention-env",
        Severity.WARNING,
        "VLLM_ATTENTION_BACKEND, which became a flag",
        "absent from vLLM 0.16.0 and every newer one",
        _old_env,
        since=(0, 16),
    ),
    Rule(
        "enforce-eager",
        Severity.WARNING,
        "no CUDA graphs",
        "gpt-oss-120b: 59 tok/s with, 26 without (-55 %): published measurements, vLLM 0.19.0, May 2026",
        _eager,
    ),
    Rule(
        "cudagraph-capture-size",
        Severity.WARNING,
        "capture beyond max-num-seqs x tokens per step x 2 costs time and memory",
        "vLLM's own default is min(that, 512)",
        _capture,
    ),
    Rule(
        "capture-misses-batch",
        Severity.WARNING,
        "a list of capture sizes without the full batch, sequences x tokens per step",
        "42 cut to 40 cost 12 % of the speed of six sequences: owners of Sparks, autumn 2026",
        _captured_list,
    ),
    Rule(
        "max-num-batched-tokens",
        Severity.ERROR,
        "too many tokens in one step",
        "65536 kills the box, 32768 does not: AEON-7/vllm-dflash#1",
        _batched,
    ),
    Rule(
        "no-gpu-memory-utilization",
        Severity.ERROR,
        "vLLM's default share of memory cannot start on a Spark",
        "default 0.90, from 0.20 on 0.92; 0.85 at most is met: vllm-project/recipes PR#632",
        _utilization,
    ),
    Rule(
        "high-gpu-memory-utilization",
        Severity.WARNING,
        "a share of memory that owners do not get",
        "0.85 to 0.87, never above 0.90: published measurements, vLLM 0.19.0, May 2026",
        _high,
    ),
    Rule(
        "kv-more-than-box",
        Severity.ERROR,
        "a KV cache larger than the memory",
        "MemTotal 121.69 GiB: nvitop PR#208",
        _kv,
    ),
    Rule(
        "kv-small-unit",
        Severity.WARNING,
        "10g is 10^10 bytes, 10G is 10 GiB",
        "human_readable_int in vLLM 0.32.0, utils/argparse_utils.py: k m g t are powers of 1000, K M G T of 1024",
        _small_unit,
    ),
    Rule(
        "fp8-kv-backend",
        Severity.ERROR,
        "an attention backend without fp8 KV or sinks on SM121",
        "vLLM 0.33.0, fa_utils.py: fp8 KV on sm90 and sm100 only, sinks with FA3 and FA4 only",
        _fp8,
    ),
    Rule(
        "dflash-too-new",
        Severity.ERROR,
        "DFlash before 0.20",
        "speculation methods in vLLM 0.19.0 and 0.20.0",
        _dflash,
        before=(0, 20),
    ),
    Rule(
        "mtp-without-head",
        Severity.ERROR,
        "MTP on a model without an MTP head",
        "vLLM raises for qwen3_moe targets",
        _headless,
    ),
    Rule(
        "turboquant-mtp",
        Severity.ERROR,
        "TurboQuant KV with MTP on a hybrid model",
        "vllm-project/vllm#53180, #40094, #50709",
        _turboquant,
    ),
    Rule(
        "too-many-drafts",
        Severity.WARNING,
        "more drafted tokens in flight than the memory takes",
        "out of memory beyond about 224: Blackwellboy/model-serving-minefield trap 98",
        _many,
    ),
    Rule(
        "mtp-old-name",
        Severity.WARNING,
        "a method such as qwen3_next_mtp, deprecated for mtp",
        "vLLM says so at the start: config/speculative.py in 0.32.0, logs of 0.19.0 and 0.24.0",
        _alias,
        since=(0, 19),
    ),
    Rule(
        "ray-memory-monitor",
        Severity.WARNING,
        "Ray's memory monitor beside an engine that fills the memory",
        "RAY_memory_monitor_refresh_ms=0 in dgx-spark-playbooks@0db7c14, nvidia/vllm",
        on_several_nodes(_monitor),
    ),
    Rule(
        "short-step-limit",
        Severity.WARNING,
        "a limit of a step that a healthy pair exceeds",
        "15 s ended a first request, 40 s none: vLLM 0.32.0 on two hosts, measured here",
        on_several_nodes(_step_limit),
    ),
    Rule(
        "mmap-loader",
        Severity.WARNING,
        "weights that are copied out of mapped files",
        "164 GiB on two boxes in 291 s, read in 66 s: GLM-5.3-Flash-EXL3-2x-DGX-Sparks#204; "
        "250 MB/s for a copy out of a mapping, 5.1 GB/s for a read: vcruz305/vllm-exl3 PR#28",
        _mapped,
    ),
    Rule(
        "many-compilers",
        Severity.WARNING,
        "a first start with many compilers beside the weights",
        "22 nvcc at a time took four boxes down, so that tonyd2wild's kit sets MAX_JOBS=2; sparkring 2, eugr 4",
        _compilers,
    ),
    Rule(
        "sleep-mode",
        Severity.ERROR,
        "an engine that is put to sleep on a Spark",
        "a GB10 went down at waking, twice: vllm#50011; other answers afterwards: zoedolan/Vybn PR#2944",
        _sleep,
    ),
    Rule(
        "streamer-without-limit",
        Severity.WARNING,
        "runai_streamer without a memory limit on two boxes",
        "a rank killed at 18 % of a load of 178 GB: NVFP4-2x#9; the limit: vllm#53906",
        on_several_nodes(_streamer),
    ),
    Rule(
        "b12x-without-io-uring",
        Severity.ERROR,
        "a loader that ends at its start without io_uring",
        "the start fails under docker's default: sparkring, Qwen standalone; "
        "podman's (containers-common 0.50.1) has no io_uring call either",
        _no_io_uring,
    ),
)

LEVERS = (
    Lever(
        "compile",
        "Its kept graphs were compiled anew, and its log says why. After `Compiling model again due to a load failure` "
        'write `env: {VLLM_USE_AOT_COMPILE: "0"}`.',
        "sparkdash's own trial, a tiny model on vLLM 0.32's CPU build",
        82.0,
        30.0,
        lambda _profile, start: start.compiled is True and start.first_on_image is False,
    ),
    Lever(
        "weights",
        "Write `load-format: instanttensor` where the image has it, else `safetensors-load-strategy: eager`: "
        "both read the files, which are mapped now.",
        "164 GiB on two Sparks by instanttensor, GLM-5.3-Flash-EXL3-2x-DGX-Sparks#204",
        291.0,
        66.0,
        lambda profile, _start: any(_mapped(profile)),
    ),
    Lever(
        "weights",
        "Try `security: io_uring`: podman refuses its loader a call that it may read with.",
        "sparkring allows it for this loader",
        applies=lambda profile, start: (start.io_uring, lookup(profile.args, "load-format")) in REFUSED_LOADS,
    ),
    Lever(
        "compile",
        "Keep its cache folder: the next start with this image takes the compiled graphs from there.",
        "30B-A3B on an H100, vllm#47456",
        43.0,
        10.0,
        lambda _profile, start: start.compiled is True,
    ),
    Lever(
        "kv",
        "Write `kv-cache-memory-bytes:` with the size that its log names as available for the KV cache: then nothing "
        "is measured.",
        "vllm#44881",
        applies=lambda profile, _start: lookup(profile.args, "kv-cache-memory-bytes") is None,
    ),
    Lever(
        "kernels",
        "Keep its cache folder: kernels are built and tuned at the first start with an image.",
        "FlashInfer's tuning, vllm PR#55671",
        416.0,
        110.0,
        lambda _profile, start: start.first_on_image is True,
    ),
    Lever(
        "graphs",
        "Write a short `cudagraph-capture-sizes:`, up to `max-num-seqs` x tokens per step.",
        "2 to 17 s by their number, vllm#47456 #20264",
        applies=lambda profile, _start: lookup(profile.args, "cudagraph-capture-sizes") is None,
    ),
)
