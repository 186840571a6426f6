"""HTTP API of the simulated engine: vLLM's routes, bodies, streams, and metrics.

Owns: a small HTTP server and the shape of every request and answer. Must not know: processes, GPU memory.
"""
