"""APIs of other servers that clients expect here: Ollama's, the model list, `/upstream/NAME`.

Owns: translating their requests into requests of the relay, and its answers into theirs.
"""
