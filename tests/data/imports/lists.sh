#!/bin/bash
# Flags whose values are several words, and one that is given more than once.
podman run -d --name vllm-lists --device nvidia.com/gpu=all localhost/vllm:test \
  vllm serve /data/model --served-model-name lists small-one \
  --gpu-memory-utilization 0.8 \
  --cudagraph-capture-sizes 1 2 4 8 \
  --lora-modules '{"name": "sql", "path": "/data/lora"}' chat=/data/chat \
  --middleware own.First --middleware own.Second \
  --limit-mm-per-prompt '{"image": 2}' \
  --allowed-origins '["https://a.example", "https://b.example"]' \
  --collect-detailed-traces model
