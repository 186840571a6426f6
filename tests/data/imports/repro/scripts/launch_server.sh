#!/bin/bash
exec vllm serve /models/Qwen3.6-27B-NVFP4 --attention-backend flash_attn --max-num-seqs 1 --port 8000 \
  --speculative-config '{"method":"dflash","model":"/models/Qwen3.6-27B-DFlash","num_speculative_tokens":15}'
