"""The profile of the tests' real engine: a tiny model under vLLM's CPU build, plain and with speculation by prompt lookup."""

import os
from pathlib import Path
from typing import Any

from vllm_cache import tiny_vllm

from sparkdash.catalog import yaml12

TOOLS = (Path(__file__).parents[1] / "data" / "tools.jinja").read_text("utf-8")
"""Chat template with tools, which the tiny model's own knows not."""


IN_CORE = "vllm.v1.executor.uniproc_executor.UniProcExecutor"
"""The engine core computes by itself, as on a box with one GPU. On the CPU vLLM starts a process more, by itself, which
imports all of it once more.
"""


def document(engine: Path, hostfs: Any, name: str = "tiny") -> str:
    """YAML of the profile `name` and its variant `ngram`; `engine` is what tests/real/setup.sh made, `hostfs` tests/conftest.py's image."""
    python = Path(os.path.realpath(engine / "venv/bin/python")).parents[1]
    profile = tiny_vllm(engine, name, hostfs.image, hostfs.mounts(engine, python))
    profile["args"] |= {
        "distributed-executor-backend": IN_CORE,
        "chat-template": TOOLS,
        "enable-auto-tool-choice": True,
        "tool-call-parser": "hermes",
    }
    profile |= {
        "serves": [f"{name}-plain"],
        "memory": {"weights_gib": 0.1, "kv_gib": 1, "overhead_gib": 2, "source": "measured: 1.4-2.6 GiB in all"},
        "variants": {
            "ngram": {
                "args": {"speculative-config": {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4}}
            }
        },
    }
    return yaml12.dump(profile)


STRICT = """
{%- for message in messages %}
  {%- if message.role == 'system' and not loop.first %}
    {{- raise_exception('System message must be at the beginning.') }}
  {%- elif message.role not in ['system', 'user', 'assistant', 'tool'] %}
    {{- raise_exception('Unexpected message role.') }}
  {%- endif %}
  {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""
"""A chat template that refuses what Qwen 3.5's refuses."""


def llama_document(llama: Path, name: str = "small", **change: Any) -> str:
    """YAML of the profile `name` under a real llama-server and its variant `short`; `llama` is what tests/real/llama.sh made."""
    profile: dict[str, Any] = {
        "profile": name,
        "about": "a hundred thousand random parameters, for tests",
        "engine": "llamacpp",
        "command": [str(llama / "bin/llama-server")],
        "gpu": False,
        "models": {"target": {"path": str(llama / "tiny.gguf")}},
        "serves": [f"{name}-plain"],
        "args": {"ctx-size": 4096, "parallel": 2, "threads": 1},
        "memory": {"weights_gib": 0.1, "kv_gib": 0.1, "overhead_gib": 0.2, "source": "measured: 60 MiB in all"},
        "variants": {"short": {"args": {"ctx-size": 1024}}},
    }
    return yaml12.dump(profile | change)
