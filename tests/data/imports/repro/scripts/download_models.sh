hf download nvidia/Qwen3.6-27B-NVFP4 --local-dir /models/Qwen3.6-27B-NVFP4
