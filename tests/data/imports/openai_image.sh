#!/usr/bin/env bash
set -euo pipefail
MODEL=openai/gpt-oss-120b   # the hub's name
PORT=${PORT:-8000}
FLAGS=(
  --max-model-len 131072   # all of it
  --kv-cache-dtype=fp8
)
docker rm -f gpt-oss 2>/dev/null || true
docker run -d --name gpt-oss --runtime=nvidia --gpus all --ipc=host --shm-size 16g --restart unless-stopped \
  --ulimit memlock=-1 -p "$PORT:8000" -v ~/.cache/huggingface:/root/.cache/huggingface \
  -e HF_TOKEN=hf_not_a_real_one -e LANG \
  vllm/vllm-openai:v0.22.1 --model "$MODEL" "${FLAGS[@]}" \
  --compilation-config.mode 3 --hf-overrides '{"rope": {"factor": 2.0}}' --enable-prefix-caching
