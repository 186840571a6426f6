"""Texts that prompts are cut from: prose, code, or a file of the owner.

Owns: the cut of a text into words, the passage of a prompt. Must not know: files (corpora/), tokens, cells.
Rule: a passage depends on the text and the draw alone, on every machine.
Pure.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, cycle, islice

from sparkdash.bench.run import RunCorpus

LEAST_WORDS = 500
"""Fewest words of a corpus. The passages of a smaller one would hardly differ."""
OPENING_WORDS = 40
"""Words of the passage in a prompt that has no context."""
_PIECE = re.compile(r"\s*\S+")


@dataclass(frozen=True, slots=True)
class CorpusText:
    """Text as words, each with the spaces before it."""

    told: RunCorpus
    pieces: tuple[str, ...]
    starts: tuple[int, ...]
    """Indices of the words that follow an empty line; a passage begins at one of them."""

    def passage(self, draw: str) -> Iterator[str]:
        """Yield the words from the paragraph that the draw selects, over the text's end to its beginning, for ever."""
        number = int.from_bytes(hashlib.sha256(f"sparkdash-corpus/v1|{draw}".encode()).digest()[:8], "big")
        start = self.starts[number % len(self.starts)]
        return chain(self.pieces[start:], ("\n\n",), cycle((*self.pieces, "\n\n")))

    def question(self, draw: str, *, alone: bool) -> str:
        """Return the question at the end of a prompt. `alone`: nothing stands before it, so it has some of the text."""
        if not alone:
            return "Go on with the text above in its own style. Write nothing else."
        opening = "".join(islice(self.passage(draw), OPENING_WORDS)).strip()
        return f"Go on with this text in its own style. Write nothing else.\n\n{opening}"


def cut_corpus(name: str, text: str) -> CorpusText | None:
    """Cut a text into words; None where it has too few of them."""
    pieces = tuple(_PIECE.findall(text))
    if len(pieces) < LEAST_WORDS:
        return None
    after_gaps = (
        number for number, piece in enumerate(pieces) if piece[: len(piece) - len(piece.lstrip())].count("\n") > 1
    )
    digest = hashlib.sha256(text.encode()).hexdigest()
    return CorpusText(RunCorpus(name=name, sha256=digest), pieces, tuple(dict.fromkeys((0, *after_gaps))))
