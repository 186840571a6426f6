"""The store: a database of swaps, loads, requests and incidents that survives restarts."""

from sparkdash.store.store import Store

__all__ = ["Store"]
