"""Present state: engines, swaps under way, learned needs, log lines, and the engines under the memory guard."""
