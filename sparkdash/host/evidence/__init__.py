"""What can be seen of an engine that hangs, kept in a folder before the engine is ended."""

from sparkdash.host.evidence.taker import PAGE_S, EvidenceTaker

__all__ = ["PAGE_S", "EvidenceTaker"]
