"""Label of a model's quantization, as leaderboards name it: NVFP4, MXFP4, FP8, GPTQ-Int4, Q4_K_M, bf16.

Owns: what the label is read from, and its spelling. Must not know: payloads.
Rule: the weights' own headers count first, then the file's name, then the engine's `--quantization`, then the model's
name. Without any of them it is unknown.
Pure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from sparkdash.domain.weights import WeightFacts

_GGUF = re.compile(r"(?:^|[-._])((?:UD-)?I?Q\d_[A-Z0-9_]+|[BF]F?16|MXFP4)(?:-\d{5}-of-\d{5})?\.gguf$", re.IGNORECASE)
_IN_NAME = re.compile(
    r"(?<![A-Za-z])(NVFP4|MXFP4|FP8|AWQ|GPTQ(?:-Int\d)?|INT\d|BF16|FP16)(?![A-Za-z0-9])", re.IGNORECASE
)
_FLAGS = {
    "gptq_marlin": "GPTQ", "gptq": "GPTQ", "awq": "AWQ", "awq_marlin": "AWQ", "mxfp4": "MXFP4", "nvfp4": "NVFP4",
    "modelopt_fp4": "NVFP4", "fp4": "FP4", "fp8": "FP8", "bitsandbytes": "bnb",
}  # fmt: skip
"""Values of `--quantization` that name a format. `modelopt` and `compressed-tensors` name a container of several."""
_UNQUANTIZED = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}


def quantization_label(weights: WeightFacts | None, argv: Sequence[str], model: str | None) -> str | None:
    """Return the label; None when nothing tells it."""
    found = _of_file(model, *argv) or (_of_weights(weights) if weights else None)
    return found or _of_flag(argv) or _of_name(model)


def _of_weights(weights: WeightFacts) -> str | None:
    if weights.format == "gguf":
        return None
    if weights.quantization is None:
        return _UNQUANTIZED.get(weights.dtype or "", weights.dtype)
    method, _, bits = weights.quantization.partition(" int")
    return f"{method.upper()}-Int{bits}" if bits and "+" not in bits else weights.quantization.upper()


def _of_file(*names: str | None) -> str | None:
    """Return the type in a GGUF file's name, which its header splits into many."""
    found = (_GGUF.search(name) for name in names if name)
    return next((one[1].upper() for one in found if one), None)


def _of_flag(argv: Sequence[str]) -> str | None:
    words = [part for word in argv for part in word.split("=", 1)]
    place = next((at for at, word in enumerate(words[:-1]) if word in ("--quantization", "-q")), None)
    return None if place is None else _FLAGS.get(words[place + 1].lower())


def _of_name(model: str | None) -> str | None:
    found = _IN_NAME.search(model or "")
    return found[1].upper().replace("-INT", "-Int") if found else None
