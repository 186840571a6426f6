podman run -d --name wrapped --device nvidia.com/gpu=all -v /data:/data nvcr.io/nvidia/vllm:26.01-py3 \
  bash -c "exec python3 -m vllm.entrypoints.openai.api_server --model /data/m --served-model-name m a/b:c --enforce-eager"
