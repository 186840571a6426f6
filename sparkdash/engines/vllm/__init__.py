"""vLLM. Pure."""

from sparkdash.engines.vllm.engine import ENGINE as ENGINE
