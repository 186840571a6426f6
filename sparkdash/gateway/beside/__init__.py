"""Beside: processes of our own for what the daemon must not load: `process` is the daemon's side of one, `serve` its own.

Owns: their lives and the way to them. Must not know what they are asked.
"""
