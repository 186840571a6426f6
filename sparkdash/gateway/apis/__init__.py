"""APIs of other servers that clients expect here: Ollama's, the model list, `/upstream/NAME`."""
