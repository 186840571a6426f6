"""Limits of everything that a client may send, as docs/api.md lists them, and how much evidence is kept. Pure."""

HEAD = 64 * 1024
"""Bytes of request line and headers, besides the piece that ends them; the largest seen of a client is 2 KiB. Answer
beyond: 431. The same limit holds between two pieces of a body (a chunk's extensions, trailers).
"""
URL = 8 * 1024
"""Bytes of path and query, before decoding. Answer beyond: 414."""
HEADERS = 128
"""Headers of a request; browsers send 20, and proxies before them as many again. Answer beyond: 431."""
CONTROL_BODY_MIB = 1
"""Size of the body of a request to /api, which names a profile and little else. Answer beyond: 413."""
NAME = 512
"""Characters of a profile's, model's or run's name; longer names count as unknown."""
WORD = 80
"""Characters of a word that all screens show: the owner of a measurement, and its step."""
PRINTABLE = r"^[^\x00-\x1f\x7f-\x9f]*$"
"""Pattern of a word on screens: a control character would move a terminal's cursor, or worse."""
COUNT = 1_000_000_000
"""Largest number in a request to /api: of lines, launches, seconds."""
AGENT = 256
"""Characters of a User-Agent that are read; the longest seen has 150."""
SHOWN = 64
"""Characters of a client's word that a message repeats."""
INCIDENTS = 20
"""Folders of evidence that are kept of engines that hung; a folder has a few MB at most."""


def shown(word: str) -> str:
    """Cut a client's word to what a message or a row can hold."""
    return word if len(word) <= SHOWN else f"{word[:SHOWN]}…"
