"""Limits: how much of anything a client may send before it is looked at.

Owns: the numbers, which docs/api.md tells. Those that an owner may change are settings (`body_limit_mib`). Pure.
Rule: whatever a client chooses the size of is held against one of these first, so that a request costs no more than its size.
"""

from __future__ import annotations

HEAD = 64 * 1024
"""Bytes of request line and headers, above the piece that ends them; the largest seen of a client is 2 KiB. Beyond it 431. As many may
stand between two pieces of a body (a chunk's extensions, trailers)."""
URL = 8 * 1024
"""Bytes of path and query, as they come. Beyond it 414."""
HEADERS = 128
"""Headers of a request; browsers send 20, and proxies before them as many again. Beyond it 431."""
CONTROL_BODY_MIB = 1
"""Of a request to /api, which names a profile and little else. Beyond it 413."""
NAME = 512
"""Characters of a profile's, model's or run's name. No longer name is known."""
WORD = 80
"""Characters of a word that all screens show: who measures, and what it does."""
PRINTABLE = r"^[^\x00-\x1f\x7f-\x9f]*$"
"""Pattern of such a word: control characters would move a terminal's cursor, or worse."""
COUNT = 1_000_000_000
"""The largest number in a request to /api: of lines, launches, seconds."""
AGENT = 256
"""Characters of a User-Agent that are looked at; the longest seen has 150."""
SHOWN = 64
"""Characters of a client's word that a message repeats."""


def shown(word: str) -> str:
    """A client's word, as much of it as a message or a row can hold."""
    return word if len(word) <= SHOWN else f"{word[:SHOWN]}…"
