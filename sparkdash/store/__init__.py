"""The store: what was learned and what was served, over restarts. Thin: it records, and answers from memory what a launch takes and how long."""

from sparkdash.store.store import Store

__all__ = ["Store"]
