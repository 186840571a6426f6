"""Text of the simulated engine: plain, seeded, endless, and marked as invented."""

import random
from collections.abc import Iterator
from dataclasses import dataclass

from sparkdash.sim.speed import text_of, tokenize

NATURAL_TOKENS = (60, 420)
CODE_SHARE = 0.3
"""Chance that a code block follows a paragraph."""

_THINGS = (
    "cache", "batch", "kernel", "page", "queue", "scheduler", "tensor", "weight", "prompt", "router", "block",
    "stream", "clock", "layer", "head", "buffer",
)  # fmt: skip
_KINDS = (
    "shared", "warm", "narrow", "quiet", "sparse", "long", "second", "local", "idle", "steady", "unified", "small",
    "patient", "fused",
)  # fmt: skip
_ACTS = (
    "holds", "moves", "waits for", "reads", "outlives", "splits", "follows", "fills", "reuses", "hands over",
    "measures", "meets",
)  # fmt: skip
_WHENS = (
    "on every step", "before the first token", "while others wait", "in one pass", "without a copy", "after the swap",
    "at a steady pace", "once it is warm",
)  # fmt: skip
_VERBS = ("load", "split", "merge", "count", "drain", "pack", "score", "trim")  # fmt: skip


@dataclass(frozen=True, slots=True)
class GeneratedToken:
    """Generated token. `text` may be empty while a stop string may be forming; the last one has `finish`."""

    token: bytes
    text: str
    finish: str | None = None
    stop_reason: str | None = None


def seeded_random(seed: str) -> random.Random:
    return random.Random(seed)  # noqa: S311 - a rehearsal, not cryptography


def answer_tokens(model: str, seed: str, returned: str | None = None) -> Iterator[bytes]:
    """Yield endless tokens of an answer, which quotes a tool's result. Same model and seed give the same text."""
    rng = seeded_random(f"{model}/{seed}")
    text = f"This is a simulated answer in the name of {model}; no model runs here."
    text += "" if returned is None else f" The tool returned: {returned}."
    while True:
        text += "".join(_sentence(rng) for _ in range(rng.randint(2, 5)))
        yield from tokenize(f"{text.strip()}\n\n")
        if rng.random() < CODE_SHARE:
            yield from tokenize(_code(rng))
        text = ""


def natural_length(seed: str) -> int:
    return seeded_random(f"length/{seed}").randint(*NATURAL_TOKENS)


def cut_answer(
    source: Iterator[bytes], natural: int | None, *, limit: int, stops: tuple[str, ...] = ()
) -> Iterator[GeneratedToken]:
    """Cut `source` at `limit` tokens ("length"), at `natural` tokens or before a stop string ("stop").

    As vLLM does, text that might be the beginning of a stop string is held back until it is clear.
    """
    held = ""
    hold = max((len(stop) for stop in stops), default=1) - 1
    for count, token in enumerate(source, 1):
        held += text_of([token])
        found = [(held.index(stop), stop) for stop in stops if stop in held]
        if found:
            at, stop = min(found)
            yield GeneratedToken(token, held[:at], "stop", stop)
            return
        if count >= limit or count == natural:
            yield GeneratedToken(token, held, "length" if count >= limit else "stop")
            return
        shown = held[: len(held) - hold] if hold else held
        held = held[len(shown) :]
        yield GeneratedToken(token, shown)


def paragraph(rng: random.Random, words: int) -> str:
    text = ""
    while text.count(" ") < words:
        text += _sentence(rng)
    return text.strip()


def _sentence(rng: random.Random) -> str:
    subject = f"the {rng.choice(_KINDS)} {rng.choice(_THINGS)}"
    text = f" {subject.capitalize()} {rng.choice(_ACTS)} the {rng.choice(_KINDS)} {rng.choice(_THINGS)}"
    if rng.random() < 0.5:
        text += f" {rng.choice(_WHENS)}"
    if rng.random() < 0.25:
        text += f", and the {rng.choice(_THINGS)} {rng.choice(_ACTS)} {rng.randint(2, 4096)} of them"
    return text + "."


def _code(rng: random.Random) -> str:
    verb, thing = rng.choice(_VERBS), rng.choice(_THINGS)
    return (
        f"```python\ndef {verb}_{thing}({thing}s, limit={rng.randint(2, 512)}):\n"
        f"    return [{thing} for {thing} in {thing}s if {thing}.size < limit]\n```\n\n"
    )
