"""TensorRT-LLM's trtllm-serve."""
