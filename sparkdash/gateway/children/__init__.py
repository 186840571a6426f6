"""Child processes for libraries that the daemon must not load: `process` is the daemon's side, `serve` the child's.

Owns: start, life and end of a child, and the socket to it. Must not know what a child is asked.
"""
