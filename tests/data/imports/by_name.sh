# a secret by its name, and one that should have been
podman run --name tokens --gpus all --tmpfs /scratch -e HF_TOKEN -e WANDB_API_KEY=not-a-real-one -e A="b c" \
  img.example/vllm:1 vllm serve meta/llama --revision main --dtype auto --chat-template '/t/x y.jinja' --served-model-name tokens l
