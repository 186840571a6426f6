"""TensorRT-LLM's trtllm-serve.

Pure.
"""

from sparkdash.engines.trtllm.engine import ENGINE as ENGINE
