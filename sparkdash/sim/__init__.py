"""Simulation: a simulated engine, a simulated box, and the demo's own traffic.

Owns: `python -m sparkdash.sim`, an HTTP server that speaks vLLM's OpenAI API with a profile's published speeds (engine,
api, process); `SimBox`, a HostReader that adds up the claims of such engines; `simulated_twin`, which turns a shipped
profile into a simulated one; `Traffic`. Must not know: the daemon, the gateway, the supervisor.
Rule: nothing here is a measurement, and everything says so: the model list, the text, the GPU's name, the version.
"""
