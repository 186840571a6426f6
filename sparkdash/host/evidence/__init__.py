"""Evidence about a hanging engine, kept in a folder before the engine is ended.

Owns: taking the evidence and its folders. Must not know why an engine looks stuck, or what happens to it.
"""

from sparkdash.host.evidence.taker import PAGE_S, EvidenceTaker

__all__ = ["PAGE_S", "EvidenceTaker"]
