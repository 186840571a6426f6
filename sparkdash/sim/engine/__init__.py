"""The simulated engine itself: scheduling, prefix cache, timing, generated text, and faults.

Owns: when each token of each answer comes, and what the engine counts. Must not know: HTTP, processes.
"""
