"""Account of the box's memory by holder, made on demand: `await account_for_memory(Sources(…))`."""

from sparkdash.host.memory_account.reading import Sources, account_for_memory

__all__ = ["Sources", "account_for_memory"]
