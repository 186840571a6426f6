"""The memory guard: a thread that kills an engine before the box stands still for lack of memory.

Owns: the look at memory, the decision and the kill. Must not know: the runtime, NVML, the event loop.
"""
