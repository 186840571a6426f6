"""Needles: facts hidden in long prompts, and the questions for them.

Owns: needle i = f(seed, context, i), its depth and its place. Must not know: engines, how an answer is judged.
Rule: a needle's text, depth and place are equal in all arms and launches, and never change with the number of needles.
Pure.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from sparkdash.bench.plan import prompts
from sparkdash.bench.plan.corpus_text import CorpusText
from sparkdash.bench.plan.prompt_text import SeededDraws, text_pieces
from sparkdash.bench.plan.prompts import Count, Prompt
from sparkdash.bench.run import CellKey

GENERATOR = "sparkdash-needles/v1"
DEPTHS = (0, 25, 50, 75, 100)
"""Places of the needle in per cent of the text before it; question i has depth i mod 5."""
SENTENCE_WORDS = 60
"""Most words that a needle moves towards the start, to stand behind the end of a sentence."""
_COLOURS = ("amber", "copper", "crimson", "emerald", "golden", "indigo", "ivory", "scarlet", "silver", "violet")
_THINGS = ("anchor", "beacon", "casket", "compass", "engine", "goblet", "lantern", "ledger", "medallion", "telescope")


@dataclass(frozen=True, slots=True)
class Needle:
    """Fact of one question."""

    depth: int
    """Per cent of the text that stands before it."""
    thing: str
    number: int

    @property
    def fact(self) -> str:
        """Sentence that is hidden."""
        return f"The secret number of the {self.thing} is {self.number}."

    @property
    def question(self) -> str:
        """Question at the end of the prompt."""
        return (
            f"One sentence above names the secret number of the {self.thing}. What is it? "
            "End with the line `ANSWER: <number>`."
        )


def needle(seed: int, context: int, item: int) -> Needle:
    """Return the needle of question `item` in prompts of that length."""
    draws = SeededDraws(f"{GENERATOR}|{seed}|{context}|{item}")
    thing = f"{draws.of(_COLOURS)} {draws.of(_THINGS)}"
    return Needle(DEPTHS[item % len(DEPTHS)], thing, 100 * (1000 + draws.below(9000)) + draws.below(100))


async def needle_prompt(seed: int, key: CellKey, item: int, count: Count, corpus: CorpusText | None) -> Prompt:
    """Build the prompt of `key.context` tokens that hides a needle in the corpus, or in generated prose."""
    hidden = needle(seed, key.context, item)
    draw = f"{GENERATOR}|{seed}|{key.context}|{item}"
    text = text_pieces("prose", draw) if corpus is None else corpus.passage(draw)
    words = tuple(islice(text, key.context))
    told = "" if corpus is None else corpus.told.sha256
    mark = hashlib.sha256(f"{draw}|{told}".encode()).hexdigest()[:12]

    def content(pieces: int, fill: str) -> str:
        at = _place(words[:pieces], hidden.depth)
        before, after = "".join(words[:at]).strip(), "".join(words[at:pieces])
        return f"[{mark}]\n{before} {hidden.fact}{after}{fill}\n\n{hidden.question}"

    prompt = Prompt(f"needle {key.context} {hidden.depth} {mark}", "")
    return await prompts.cut_prompt(prompt, content, key.context, count, prompts.text_of(corpus))


def _place(words: Sequence[str], depth: int) -> int:
    """Return the number of words before the needle: the depth's, or fewer, up to the end of a sentence."""
    at = round(len(words) * depth / 100)
    ends = (place for place in range(at, max(0, at - SENTENCE_WORDS), -1) if words[place - 1].endswith((".", "!", "?")))
    return next(ends, at)
