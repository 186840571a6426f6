"""Checkpoints, read from their headers: shape, quantization, tensors and KV cache. No weight is read."""
