"""Who holds the box's memory: `await account_for_memory(Sources(…))`, on demand."""

from sparkdash.host.memory_account.reading import Sources, account_for_memory

__all__ = ["Sources", "account_for_memory"]
