"""The store: what was learned and what was served, over restarts. Thin: it records, and answers one question."""

from sparkdash.store.store import Store

__all__ = ["Store"]
