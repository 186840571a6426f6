"""Flags of the engines' command lines, as an import reads them.

Pure.
"""

from __future__ import annotations

import re

_OF_VLLM = {
    "tp": "tensor-parallel-size",
    "pp": "pipeline-parallel-size",
    "dp": "data-parallel-size",
    "sc": "speculative-config",
    "cc": "compilation-config",
    "q": "quantization",
}
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
    "s": "seed",
    "draft": "draft-max",
    "gpu-layers": "n-gpu-layers",
}
SHORT_FLAGS = {
    "vllm": _OF_VLLM,
    "sglang": {"model": "model-path", "tp": "tp-size", "pp": "pp-size"},
    "llamacpp": _OF_LLAMACPP,
    "trtllm": {},
}
BARE_FLAGS = re.compile(
    r"(enable|disable|no)-.*|trust-remote-code|enforce-eager|async-scheduling|jinja|metrics|mlock|cont-batching"
    r"|embedding|verbose"
)
"""Flags without a value, so that the word after them can be the model."""
OWN_FLAGS = {
    "vllm": {"enable-prompt-tokens-details"},
    "sglang": {"enable-metrics", "enable-cache-report"},
    "llamacpp": {"metrics", "no-mmap"},
    "trtllm": set[str](),
}
"""Bare flags that sparkdash adds by itself, and that an import therefore drops."""
OWN_VALUES = {("sglang", "decode-log-interval", "10"), ("llamacpp", "load-mode", "none")}
ADDRESS_FLAGS = ("host", "port")
NODE_FLAGS = ("nnodes", "node-rank", "headless")
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
