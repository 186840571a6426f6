"""Who holds the box's memory: `await look(Sources(…))`, on demand."""

from sparkdash.host.memory_account.reading import Sources, look

__all__ = ["Sources", "look"]
