"""Simulation: a simulated engine, a simulated box, and the demo's own traffic.

Owns: `python -m sparkdash.sim`, a real HTTP server that speaks vLLM's OpenAI API with a profile's published
speeds; `SimBox`, a HostReader that adds up what such engines claim; `twin`, which turns a shipped profile into
its rehearsal; `Traffic`. Must not know: the daemon, the gateway, the supervisor. Nothing here is a measurement,
and everything says so: the model list, the text, the GPU's name, the version.
"""
