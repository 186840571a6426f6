#!/bin/bash
export VLLM_X=1
VLLM_Y=2 vllm serve /models/Qwen3.6-27B-NVFP4 --attention-backend flash_attn --max-num-seqs 4 --port 8000
