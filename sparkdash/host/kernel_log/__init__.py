"""The kernel's log: how it is read, and which of its lines explain why an engine fails.

Owns: reading the log on demand, and the meaning of its lines. Must not know: engines, profiles.
"""
