podman run -d --replace --name vllm-turbo \
  --device nvidia.com/gpu=all \
  --security-opt=label=disable \
  --hooks-dir=/usr/share/containers/oci/hooks.d \
  -p 8011:8000 \
  -v /data/tensordata:/data/tensordata \
  -e VLLM_USE_FLASHINFER_MOE_FP4=0 \
  localhost/vllm-turbo:dual \
  vllm serve /data/tensordata/Qwen3-Coder-30B-A3B-Instruct-NVFP4 \
    --host 0.0.0.0 --port 8000 \
    --served-model-name qwen3-coder \
    --gpu-memory-utilization 0.05 --kv-cache-memory-bytes 10G \
    --max-model-len 32768 \
    --trust-remote-code
