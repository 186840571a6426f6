"""Recorded streams of real engines: which route each is of, and the same bytes in other pieces."""

import random
from itertools import pairwise

from sparkdash.gateway.protocol.route import Dialect

PATHS = {
    Dialect.CHAT: "/v1/chat/completions",
    Dialect.COMPLETIONS: "/v1/completions",
    Dialect.MESSAGES: "/v1/messages",
    Dialect.RESPONSES: "/v1/responses",
}


def dialect_of(name: str) -> Dialect:
    """By the file's name."""
    return next(Dialect(word) for word in name.split("-") if word in {*PATHS})


def cut(data: bytes, dice: random.Random) -> list[bytes]:
    """The same bytes in pieces: whole, byte by byte, or anything between."""
    places = dice.choice((0, 1, 3, 20, len(data)))
    edges = sorted({0, len(data), *(dice.randrange(len(data) + 1) for _ in range(places))})
    return [data[start:end] for start, end in pairwise(edges)]
