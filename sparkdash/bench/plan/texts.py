"""Texts that prompts are made of: generated prose, code, JSON and chat, equal on every machine. Pure."""

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import count

VERSION = 1


def _listed(text: str, end: str | None = None) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.strip().split(end))


_NOUNS = _listed("""
harbour ledger orchard lantern bridge glacier kettle compass quarry violin carpet engine meadow chimney archive saddle
telescope bakery ferry notebook ladder furnace reef cellar balcony marble signal tunnel window garden anchor pulley
market valley beacon curtain shelter pendulum magnet basket museum granary workshop island staircase canal fountain
printer sawmill courtyard thermometer tower riverbed hangar parcel turbine clock pantry trellis locomotive blanket
observatory vineyard barrel corridor timber satellite cottage switchboard aqueduct kiln postcard plough greenhouse
""")
_PEOPLE = _listed("""
Amara Bertil Chen Dalia Emeka Farah Goran Hana Ilya Jovana Kofi Leila Mateo Nadia Orla Pavel Quinn Rosa Suda Tomas Uma
Viktor Wanda Xiu Yusuf Zofia
""")
_KINDS = _listed("""
narrow copper forgotten heavy patient crooked silent painted hollow restless borrowed frozen early ordinary distant
fragile amber stubborn loose careful faded northern wooden uneven bright damp secondhand steep gentle unfinished
""")
_DID = _listed("""
carried repaired measured sketched weighed followed opened polished counted moved described lost recovered traded
painted locked emptied tested guarded inspected wrapped numbered borrowed lifted explained lowered mapped sealed
""")
_WHEN = _listed(
    """
before the second frost|after a short argument|while the tide was out|on the last working day|without asking anyone|
at the edge of the village|during the long repair|in spite of the rain|under the old agreement|between two deliveries|
once the noise had stopped|for the third year running|as the instructions demanded|behind the locked gate
""",
    "|",
)
_WHY = _listed(
    """
because the figures did not agree|so that nobody had to wait|although it cost more than planned|which surprised no one|
until the spare part arrived|as far as anyone remembers|and wrote the result on the wall|if the report can be trusted
""",
    "|",
)
_VERBS = ("collect", "merge", "scan", "rank", "trim", "parse", "group", "split", "route", "score", "index", "pack")
_TYPES = ("int", "str", "float", "bytes", "bool", "list[int]", "dict[str, int]", "tuple[int, ...]")


_PIECE = re.compile(r"\s*\S+(?:\s+\Z)?")
"""Word with the spaces before it; the last word of a text also has those after it."""


class SeededDraws:
    """Numbers drawn from a seed."""

    def __init__(self, seed: str) -> None:
        self._words = _words(seed)

    def below(self, limit: int) -> int:
        """Draw 0 <= number < limit. `limit` is at most a few thousand, so that the remainder's bias is negligible."""
        return next(self._words) % limit

    def of(self, choices: Sequence[str]) -> str:
        return choices[self.below(len(choices))]


def _words(seed: str) -> Iterator[int]:
    for block in count():
        digest = hashlib.sha256(f"sparkdash-prose/v{VERSION}|{seed}|{block}".encode()).digest()
        for at in range(0, 32, 4):
            yield int.from_bytes(digest[at : at + 4], "big")


def text_pieces(kind: str, seed: str) -> Iterator[str]:
    """Yield endless text of that class, word by word with its spaces."""
    draws = SeededDraws(f"{kind}|{seed}")
    while True:
        yield from _PIECE.findall(_MAKERS[kind](draws))


def closing_question(kind: str, seed: str) -> str:
    draws = SeededDraws(f"question|{kind}|{seed}")
    one, other = draws.of(_NOUNS), draws.of(_NOUNS)
    match kind:
        case "code":
            return (
                f"Write a Python module with functions that {draws.of(_VERBS)} and {draws.of(_VERBS)} records of "
                f"a {one} "
                f"and a {other}, with docstrings and a test for each."
            )
        case "json":
            return (
                f"Write a JSON array of records about a {one}, each with an id, a name, a price, three tags and "
                f"a nested "
                f"object about its {other}. Write nothing but JSON."
            )
        case "chat":
            return (
                f"A colleague asks why the {draws.of(_KINDS)} {one} matters more than the {other}. Answer in several "
                f"paragraphs, with examples."
            )
        case _:
            return (
                f"Go on with a story in which {draws.of(_PEOPLE)} finds a {draws.of(_KINDS)} {one} beside the {other}, "
                f"in long and varied sentences."
            )


def _prose(draws: SeededDraws) -> str:
    sentences = [_sentence(draws) for _ in range(2 + draws.below(4))]
    return " ".join(sentences) + "\n\n"


def _sentence(draws: SeededDraws) -> str:
    thing = f"the {draws.of(_KINDS)} {draws.of(_NOUNS)}"
    match draws.below(5):
        case 0:
            return f"{draws.of(_PEOPLE)} {draws.of(_DID)} {thing} {draws.of(_WHEN)}."
        case 1:
            return f"{thing.capitalize()} stood beside the {draws.of(_NOUNS)}, {draws.of(_WHY)}."
        case 2:
            return (
                f"Of {2 + draws.below(900)} {draws.of(_NOUNS)}s only {1 + draws.below(40)} were {draws.of(_DID)} "
                f"{draws.of(_WHEN)}, {draws.of(_WHY)}."
            )
        case 3:
            return (
                f"{draws.of(_WHEN).capitalize()}, {draws.of(_PEOPLE)} and {draws.of(_PEOPLE)} {draws.of(_DID)} "
                f"{thing}, "
                f"then {draws.of(_DID)} a {draws.of(_NOUNS)}."
            )
        case _:
            said = f'"{draws.of(_KINDS).capitalize()} or not," said {draws.of(_PEOPLE)}'
            return f'{said}, "somebody {draws.of(_DID)} {thing}."'


def _code(draws: SeededDraws) -> str:
    verb, noun, other = draws.of(_VERBS), draws.of(_NOUNS), draws.of(_NOUNS)
    return (
        f"def {verb}_{noun}({other}s: {draws.of(_TYPES)}, limit: int = {draws.below(4096)}) -> {draws.of(_TYPES)}:\n"
        f'    """{draws.of(_VERBS).capitalize()} every {noun} of a {draws.of(_KINDS)} {other}."""\n'
        f"    {noun} = [{other[0]} for {other[0]} in {other}s if {other[0]}.{draws.of(_NOUNS)} < limit]\n"
        f"    for place, {draws.of(_NOUNS)} in enumerate({noun}):\n"
        f"        if place % {2 + draws.below(60)} == {draws.below(9)}:\n"
        f"            {draws.of(_VERBS)}({noun}[place], {draws.below(1000) / 100})\n"
        f"    return {noun}\n\n\n"
    )


def _json(draws: SeededDraws) -> str:
    tags = ", ".join(f'"{draws.of(_KINDS)}"' for _ in range(1 + draws.below(4)))
    return (
        f'{{"id": {draws.below(100000)}, "name": "{draws.of(_NOUNS)} {draws.of(_NOUNS)}", '
        f'"owner": "{draws.of(_PEOPLE)}", "price": {draws.below(90000) / 100}, '
        f'"tags": [{tags}], "{draws.of(_NOUNS)}": {{"{draws.of(_KINDS)}": '
        f'{"true" if draws.below(2) else "false"}, "count": {draws.below(500)}}}}}\n'
    )


def _chat(draws: SeededDraws) -> str:
    who, other = draws.of(_PEOPLE), draws.of(_PEOPLE)
    return f"{who}: {_sentence(draws)} Is that so?\n{other}: {_sentence(draws)} {_sentence(draws)}\n"


_MAKERS: dict[str, Callable[[SeededDraws], str]] = {"prose": _prose, "code": _code, "json": _json, "chat": _chat}
