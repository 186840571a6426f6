"""Arithmetic questions with whole-number answers.

Rule 1: question i of a seed depends only on the bytes of SHA-256("sparkdash-math/v2|SEED|I"): big-endian 32-bit words,
each used as `lowest + word % count`. Any language can generate the same questions, and asking for more of them changes
none of the first.
Rule 2: a published version never changes; a correction becomes v3. Questions and results carry the version. Pure.
"""

import hashlib
import re
import struct
from collections.abc import Iterator
from enum import StrEnum

from sparkdash.domain.base import Frozen

GENERATOR = "sparkdash-math/v2"

ASK = "You may work it out step by step. The last line must be exactly of this form:\nANSWER: <integer>"


class Stratum(StrEnum):
    """Kinds of question, separate in every report: two arms may differ in only one of them."""

    SUM = "sum"
    """A fifth: three digits plus or minus three digits. Nearly all models can; it shows what is broken."""
    PRODUCT = "product"
    """Four fifths: 2 x 2, 3 x 2 or 3 x 3 digits."""


class Question(Frozen):
    """Arithmetic question with its answer."""

    number: int
    stratum: Stratum
    text: str
    answer: int

    @property
    def id(self) -> str:
        """Identity of the question, equal in all runs with this seed; pairs are matched by it."""
        return f"math2 {self.number}"

    @property
    def prompt(self) -> str:
        return f"{self.text}\n\n{ASK}"


def number_of(prompt_id: str) -> int | None:
    found = re.fullmatch(r"math2 ([0-9]+)", prompt_id)
    return int(found.group(1)) if found else None


def questions(seed: int, count: int) -> Iterator[Question]:
    """Yield the first `count` questions of a seed. Every five hold one sum and four products."""
    return (question(seed, number) for number in range(count))


def question(seed: int, number: int) -> Question:
    words: Iterator[int] = iter(struct.unpack(">8I", hashlib.sha256(f"{GENERATOR}|{seed}|{number}".encode()).digest()))

    def between(low: int, high: int) -> int:
        return low + next(words) % (high - low + 1)

    if number % 5 == 0:
        a, b, sign = between(100, 999), between(100, 999), "-+"[between(0, 1)]
        answer = a + b if sign == "+" else a - b
        return Question(number=number, stratum=Stratum.SUM, text=f"What is {a} {sign} {b}?", answer=answer)
    shape = between(0, 2)
    a = between(11, 99) if shape == 0 else between(101, 999)
    b = between(101, 999) if shape == 2 else between(11, 99)
    return Question(number=number, stratum=Stratum.PRODUCT, text=f"What is {a} * {b}?", answer=a * b)
