"""KeptAnswer: the bytes of one answer, kept while it passes. Made for captured requests and replays alone.

Owns: how much of an answer is kept. Must not know files.
"""

from __future__ import annotations

from collections.abc import Callable

from sparkdash.gateway.protocol.answer_text import answer_text
from sparkdash.gateway.protocol.route import Dialect
from sparkdash.units import MIB

LIMIT = 2 * MIB
"""Bytes beyond which an answer is not kept at all: a stream has some 200 bytes for each token."""

Note = Callable[[bytes, float], object]


class KeptAnswer:
    """Answer to the request `request_id`, as the engine gave it."""

    def __init__(self, request_id: str) -> None:
        self.request_id = request_id
        self.is_whole = False
        """Whether the answer came to its end without an error."""
        self._stream = False
        self._size = 0
        self._pieces: list[bytes] = []

    def begin(self, note: Note, *, stream: bool) -> Note:
        """Return a `note` that keeps each piece as well; an answer that was begun before is dropped."""
        pieces = self._pieces = []
        self._size, self._stream, self.is_whole = 0, stream, False

        def noted(piece: bytes, now: float) -> None:
            note(piece, now)
            self._size += len(piece)
            if self._size <= LIMIT:
                pieces.append(piece)

        return noted

    def text(self, dialect: Dialect) -> str | None:
        """Return the text of the whole answer; None where it broke off, is too long or cannot be read."""
        if not self.is_whole or self._size > LIMIT:
            return None
        return answer_text(b"".join(self._pieces), dialect, stream=self._stream)
