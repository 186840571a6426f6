podman run --device nvidia.com/gpu=all --ulimit stack=67108864 nvcr.io/nvidia/tensorrt-llm/release:1.2.0 \
  trtllm-serve openai/gpt-oss-20b --max_seq_len 32768 --max_batch_size 4 --port 8355
