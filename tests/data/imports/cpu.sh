docker run --name cpu -v /models:/w:ro localhost/llama:cpu /usr/bin/llama-server -hf ggml-org/tiny:Q4_0 --threads 4 -np 2
