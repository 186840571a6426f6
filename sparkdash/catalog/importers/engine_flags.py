"""Flags of the engines' command lines, as an import reads them.

Pure.
"""

from __future__ import annotations

import re

from sparkdash.domain.profile import EngineKind
from sparkdash.engines.flag_table import flag_table

_OF_VLLM = {
    "tp": "tensor-parallel-size",
    "pp": "pipeline-parallel-size",
    "dp": "data-parallel-size",
    "sc": "speculative-config",
    "cc": "compilation-config",
    "ac": "attention-config",
    "q": "quantization",
    "n": "nnodes",
    "r": "node-rank",
    "ep": "enable-expert-parallel",
    "dcp": "decode-context-parallel-size",
    "pcp": "prefill-context-parallel-size",
    "dpn": "data-parallel-rank",
    "dpr": "data-parallel-start-rank",
    "dpl": "data-parallel-size-local",
    "dpa": "data-parallel-address",
    "dpp": "data-parallel-rpc-port",
    "dpb": "data-parallel-backend",
    "dph": "data-parallel-hybrid-lb",
    "dpe": "data-parallel-external-lb",
    "asc": "api-server-count",
    "O": "optimization-level",
}
"""Short flags of the argument parser of vLLM 0.32.0."""
_OF_LLAMACPP = {
    "m": "model",
    "md": "model-draft",
    "c": "ctx-size",
    "ngl": "n-gpu-layers",
    "ngld": "n-gpu-layers-draft",
    "hf": "hf-repo",
    "a": "alias",
    "fa": "flash-attn",
    "np": "parallel",
    "b": "batch-size",
    "ub": "ubatch-size",
    "t": "threads",
    "ctk": "cache-type-k",
    "ctv": "cache-type-v",
    "n": "n-predict",
    "cb": "cont-batching",
    "nocb": "no-cont-batching",
    "s": "seed",
    "draft": "draft-max",
    "gpu-layers": "n-gpu-layers",
    "ot": "override-tensor",
    "ts": "tensor-split",
    "sm": "split-mode",
    "mg": "main-gpu",
    "dev": "device",
    "tb": "threads-batch",
    "cmoe": "cpu-moe",
    "ncmoe": "n-cpu-moe",
    "kvo": "kv-offload",
    "nkvo": "no-kv-offload",
    "kvu": "kv-unified",
    "dt": "defrag-thold",
    "mm": "mmproj",
    "mmu": "mmproj-url",
    "mu": "model-url",
    "hff": "hf-file",
    "hfr": "hf-repo",
    "hft": "hf-token",
    "cram": "cache-ram",
    "ctxcp": "ctx-checkpoints",
    "lv": "verbosity",
    "v": "verbose",
    "to": "timeout",
    "sps": "slot-prompt-similarity",
    "e": "escape",
    "r": "reverse-prompt",
    "sp": "special",
    "l": "logit-bias",
    "j": "json-schema",
    "jf": "json-schema-file",
    "C": "cpu-mask",
    "lcs": "lookup-cache-static",
    "lcd": "lookup-cache-dynamic",
    "td": "threads-draft",
    "tbd": "threads-batch-draft",
    "devd": "device-draft",
    "ctkd": "cache-type-k-draft",
    "ctvd": "cache-type-v-draft",
    "hfd": "hf-repo-draft",
    "hfrd": "hf-repo-draft",
    "otd": "override-tensor-draft",
    "cmoed": "cpu-moe-draft",
    "ncmoed": "n-cpu-moe-draft",
}
"""Short flags that llama-server lists in its `--help`, by their long names."""
SHORT_FLAGS = {
    "vllm": _OF_VLLM,
    "sglang": {"model": "model-path", "tp": "tp-size", "pp": "pp-size"},
    "llamacpp": _OF_LLAMACPP,
    "trtllm": {},
}
_BARE = re.compile(
    r"(enable|disable|no)-.*|trust-remote-code|enforce-eager|async-scheduling|jinja|metrics|mlock|cont-batching"
    r"|embedding|verbose"
)
"""Flags without a value, so that the word after them can be the model."""
POSITIONAL_MODEL = ("vllm", "trtllm", "sglang")
"""Engines whose model may be a word of its own."""
OWN_FLAGS = {
    "vllm": {"enable-prompt-tokens-details"},
    "sglang": {"enable-metrics", "enable-cache-report"},
    "llamacpp": {"metrics", "no-mmap"},
    "trtllm": set[str](),
}
"""Bare flags that sparkdash adds by itself, and that an import therefore drops."""
OWN_VALUES = {("sglang", "decode-log-interval", "10"), ("llamacpp", "load-mode", "none")}
ADDRESS_FLAGS = ("host", "port")
OLD_SPECULATION = {
    "speculative-model": "model",
    "speculative-method": "method",
    "num-speculative-tokens": "num_speculative_tokens",
    "speculative-draft-tensor-parallel-size": "draft_tensor_parallel_size",
    "speculative-max-model-len": "max_model_len",
}
"""Flags that no vLLM since 0.16 has, and their keys in --speculative-config."""
MODEL_FLAGS = {"vllm": ("model",), "sglang": ("model-path",), "llamacpp": ("model", "hf-repo"), "trtllm": ("model",)}
NAME_FLAG = {"vllm": "served-model-name", "sglang": "served-model-name", "llamacpp": "alias", "trtllm": ""}
DRAFTER_FLAG = {
    "vllm": "",
    "sglang": "speculative-draft-model-path",
    "llamacpp": "model-draft",
    "trtllm": "",
}


def is_bare_flag(kind: str, key: str) -> bool:
    """Whether a flag is known to take no value: by the engine's flag table, else by its name."""
    table = flag_table(EngineKind(kind))
    facts = table.find(key) if table else None
    if facts is not None and facts.present:
        return facts.takes(max(facts.present)) in ("none", "toggle")
    return _BARE.fullmatch(key) is not None


def long_name(kind: str, short: str) -> str | None:
    """Return the long name of a short flag, both without hyphens; None for an unknown one."""
    if short in SHORT_FLAGS[kind]:
        return SHORT_FLAGS[kind][short]
    table = flag_table(EngineKind(kind))
    facts = table.by_word.get(f"-{short}") if table else None
    if facts is None:
        return None
    negation = next((word[2:] for word in facts.spellings if word.startswith("--no-")), None)
    return negation if negation and short.startswith("n") else facts.name
