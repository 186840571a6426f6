podman run -d --name minimax --device nvidia.com/gpu=all -v /models/gguf:/models/gguf:ro \
  ghcr.io/ggml-org/llama.cpp:server-cuda -m /models/gguf/MiniMax-M2.7-Q3.gguf -md /models/gguf/draft.gguf \
  -c 65536 -ngl 999 -fa on --jinja --host 0.0.0.0 --port 8080 -a minimax-m2.7 --no-mmap
