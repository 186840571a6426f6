#!/bin/bash
# node 1 of 4
MASTER=10.0.0.1
docker run -d --name vllm-r1 --network host --ipc host --gpus all --device /dev/infiniband --ulimit memlock=-1 \
  -e NCCL_IB_HCA=rocep1s0f0,rocep1s0f1 -e NCCL_SOCKET_IFNAME=enP7s7 -e VLLM_HOST_IP=10.0.0.2 \
  -v /models:/models vllm/vllm-openai:v0.32.0 \
  --model /models/GLM --tensor-parallel-size 4 --nnodes 4 --node-rank 1 --master-addr $MASTER --master-port 29501 --headless
