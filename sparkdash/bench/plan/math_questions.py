"""Arithmetic questions with whole-number answers.

Rule 1: question i of a seed depends only on the bytes of SHA-256("sparkdash-math/v1|SEED|I"): eight big-endian 32-bit
words, each used as `lowest + word % count`. Any language can generate the same questions, and asking for more of them
changes none of the first.
Rule 2: a published version never changes; a correction becomes v2. Results carry the version.
Pure.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Callable, Iterator
from enum import StrEnum

from sparkdash.domain.base import Frozen

GENERATOR = "sparkdash-math/v1"

ASK = "You may work it out step by step. The last line must be exactly of this form:\nANSWER: <integer>"


class Stratum(StrEnum):
    """Kinds of question, separate in every report: two arms may differ in only one of them."""

    SUM = "sum"
    """A fifth of the questions: three digits plus or minus three digits. Nearly all models can; it shows what is
    broken.
    """
    PRODUCT = "product"
    """Two fifths: 2 x 2, 3 x 1 or 3 x 2 digits."""
    WORDS = "words"
    """Two fifths: two to five steps in a short story."""


class Question(Frozen):
    """Arithmetic question with its answer."""

    number: int
    stratum: Stratum
    text: str
    answer: int

    @property
    def id(self) -> str:
        """Identity of the question, equal in all runs with this seed; pairs are matched by it."""
        return f"math {self.number}"

    @property
    def prompt(self) -> str:
        """Text that is sent."""
        return f"{self.text}\n\n{ASK}"


def number_of(prompt_id: str) -> int | None:
    """Return the number in a question's id; None for any other id."""
    found = re.fullmatch(r"math ([0-9]+)", prompt_id)
    return int(found.group(1)) if found else None


def questions(seed: int, count: int) -> Iterator[Question]:
    """Yield the first `count` questions of a seed. Every five hold one sum, two products and two stories."""
    return (question(seed, number) for number in range(count))


def question(seed: int, number: int) -> Question:
    """Return the question with that number (from 0)."""
    draw = _Draw(hashlib.sha256(f"{GENERATOR}|{seed}|{number}".encode()).digest())
    stratum = _STRATA[number % len(_STRATA)]
    text, answer = _MAKERS[stratum](draw)
    return Question(number=number, stratum=stratum, text=text, answer=answer)


class _Draw:
    """Words of one digest, in order."""

    def __init__(self, digest: bytes) -> None:
        self._words: Iterator[int] = iter(struct.unpack(">8I", digest))

    def between(self, low: int, high: int) -> int:
        """Draw a whole number, both ends included."""
        return low + next(self._words) % (high - low + 1)

    def name(self) -> str:
        return _NAMES[next(self._words) % len(_NAMES)]


_NAMES = ("Ada", "Bela", "Chidi", "Dana", "Emre", "Freya", "Goran", "Hana", "Ivo", "Jun", "Kofi", "Lena")
_STRATA = (Stratum.SUM, Stratum.PRODUCT, Stratum.PRODUCT, Stratum.WORDS, Stratum.WORDS)

_Maker = Callable[[_Draw], tuple[str, int]]


def _sum(draw: _Draw) -> tuple[str, int]:
    a, b = draw.between(100, 999), draw.between(100, 999)
    return (f"What is {a} + {b}?", a + b) if draw.between(0, 1) else (f"What is {a} - {b}?", a - b)


def _product(draw: _Draw) -> tuple[str, int]:
    shape = draw.between(0, 2)
    a = draw.between(11, 99) if shape == 0 else draw.between(101, 999)
    b = draw.between(3, 9) if shape == 1 else draw.between(11, 99)
    return f"What is {a} * {b}?", a * b


def _words(draw: _Draw) -> tuple[str, int]:
    return _STORIES[draw.between(0, len(_STORIES) - 1)](draw)


def _shop(draw: _Draw) -> tuple[str, int]:
    who, a, p, b, q = draw.name(), draw.between(3, 9), draw.between(120, 480), draw.between(2, 8), draw.between(35, 95)
    paid = -(-(a * p + b * q) // 1000) * 1000
    return (
        f"{who} buys {a} notebooks at {p} cents each and {b} pens at {q} cents each, and pays with {paid} cents. "
        "How many cents of change are due?",
        paid - a * p - b * q,
    )


def _pumps(draw: _Draw) -> tuple[str, int]:
    first, alone, second, both = draw.between(12, 48), draw.between(5, 25), draw.between(7, 36), draw.between(6, 30)
    return (
        f"A pump delivers {first} litres a minute into an empty tank. After {alone} minutes a second pump, which "
        f"delivers "
        f"{second} litres a minute, joins it. How many litres are in the tank after {both} more minutes?",
        first * (alone + both) + second * both,
    )


def _ages(draw: _Draw) -> tuple[str, int]:
    who, age, older, years = draw.name(), draw.between(6, 40), draw.between(3, 28), draw.between(2, 15)
    return (
        f"{who} has a brother who is {older} years younger. In {years} years the sum of their ages will be "
        f"{2 * age + older + 2 * years}. How old is {who} today?",
        age + older,
    )


def _crates(draw: _Draw) -> tuple[str, int]:
    apples, crate, trucks = draw.between(700, 4000), draw.between(12, 36), draw.between(4, 9)
    return (
        f"{apples} apples are packed into crates of {crate}; apples that fill no whole crate are sold at once. "
        f"The full "
        f"crates are shared evenly among {trucks} trucks, as many on each as possible. How many full crates are "
        f"left over?",
        apples // crate % trucks,
    )


def _ride(draw: _Draw) -> tuple[str, int]:
    who, fast, long, slow, rest = (
        draw.name(),
        draw.between(18, 32),
        draw.between(2, 6),
        draw.between(11, 17),
        draw.between(2, 5),
    )
    left = draw.between(5, 60)
    total = fast * long + slow * rest + left
    return (
        f"{who} sets out on a tour of {total} km, rides {long} hours at {fast} km/h and then {rest} hours at "
        f"{slow} km/h. "
        "How many kilometres remain?",
        left,
    )


def _library(draw: _Draw) -> tuple[str, int]:
    hundreds, percent, lent = draw.between(12, 85), draw.between(15, 70), draw.between(40, 300)
    return (
        f"A library owns {100 * hundreds} books, of which {percent} percent are novels. Of the other books "
        f"{lent} are lent "
        "out. How many books that are not novels are in the library?",
        hundreds * (100 - percent) - lent,
    )


def _machines(draw: _Draw) -> tuple[str, int]:
    count, rate, before, off, after = (
        draw.between(6, 14),
        draw.between(15, 45),
        draw.between(2, 7),
        draw.between(2, 5),
        draw.between(2, 6),
    )
    return (
        f"Each of {count} machines makes {rate} parts an hour. After {before} hours {off} of them are switched "
        f"off, and the "
        f"others go on for {after} hours. How many parts are made in all?",
        rate * (count * before + (count - off) * after),
    )


def _theatre(draw: _Draw) -> tuple[str, int]:
    lines, seats, empty, half, children = (
        draw.between(8, 24),
        draw.between(12, 30),
        draw.between(5, 40),
        draw.between(3, 12),
        draw.between(6, 45),
    )
    visitors = lines * seats - empty
    return (
        f"A theatre has {lines} rows of {seats} seats, and {empty} seats stay empty. A ticket costs {2 * half} euros; "
        f"the {children} children among the visitors pay half. How many euros are taken?",
        2 * half * (visitors - children) + half * children,
    )


def _savings(draw: _Draw) -> tuple[str, int]:
    who, first, more, weeks, spent = (
        draw.name(),
        draw.between(15, 60),
        draw.between(2, 9),
        draw.between(5, 12),
        draw.between(20, 70),
    )
    return (
        f"{who} saves {first} coins in the first week, and in each week after it {more} more than in the week before. "
        f"After {weeks} weeks {who} spends {spent} coins. How many are left?",
        weeks * first + more * weeks * (weeks - 1) // 2 - spent,
    )


def _fence(draw: _Draw) -> tuple[str, int]:
    gap, long, wide, price = draw.between(2, 5), draw.between(11, 30), draw.between(5, 19), draw.between(7, 26)
    return (
        f"A rectangular field is {gap * long} m long and {gap * wide} m wide. A post stands at every corner and "
        f"every {gap} m "
        f"along the sides. A post costs {price} euros. What do all posts cost, in euros?",
        2 * (long + wide) * price,
    )


_STORIES: tuple[_Maker, ...] = (
    _shop,
    _pumps,
    _ages,
    _crates,
    _ride,
    _library,
    _machines,
    _theatre,
    _savings,
    _fence,
)
_MAKERS: dict[Stratum, _Maker] = {Stratum.SUM: _sum, Stratum.PRODUCT: _product, Stratum.WORDS: _words}
