docker run --gpus all -it --rm --shm-size 32g -p 30000:30000 \
  --mount type=bind,source=/models,target=/models,readonly --env SGLANG_X=1 lmsysorg/sglang:spark \
  python3 -m sglang.launch_server --model-path /models/gpt-oss --host 0.0.0.0 --port 30000 \
  --mem-fraction-static 0.7 --speculative-algorithm EAGLE3 --speculative-draft-model-path /models/gpt-oss-eagle3 --tp 1
