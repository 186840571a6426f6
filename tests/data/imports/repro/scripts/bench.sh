llama-benchy
