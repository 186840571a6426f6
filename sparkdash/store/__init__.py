"""The store: a database of swaps, loads, requests and incidents that survives restarts.

Owns: recording, and answering from memory how long a launch takes and how much memory it needs.
"""

from sparkdash.store.store import Store

__all__ = ["Store"]
