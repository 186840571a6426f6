"""Flags of one engine by version, out of its `flags.json`. Pure."""

import json
import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, takewhile
from pathlib import Path
from typing import Any, Literal

from sparkdash.engines.argv import ListArgs

Takes = Literal["none", "toggle", "one", "optional", "many", "append", "pair"]
"""Values after a flag: none; none, and `--no-…` exists; one; none or one; several words; one each time; two."""
_BUILD = re.compile(r"b?(\d{4,6})")


@dataclass(frozen=True, slots=True)
class FlagSyntax:
    """Habits of an engine's argument parser."""

    abbreviates: bool = False
    """Whether it takes the beginning of a long flag (argparse)."""
    is_literal: bool = False
    """Whether hyphens and underscores are different characters to it."""
    nests: bool = False
    """Whether `--a.b 1` is its short way to a JSON object."""
    reads_c_numbers: bool = False
    """Whether it leaves what follows the digits of a number (std::stoi)."""
    has_builds: bool = False
    """Whether versions are build numbers, all digits of which count."""
    has_candidates: bool = False
    """Whether release candidates were read: a release may differ."""


class FlagSource:
    """An engine's flags by version, read from `flags.json` beside `module`, and how its own images are recognised."""

    def __init__(self, module: str, title: str, syntax: FlagSyntax, *, own_images: str, version_in_tag: str) -> None:
        self.title = title
        self.syntax = syntax
        self._file = Path(module).with_name("flags.json")
        self._own_images = own_images
        self._version_in_tag = version_in_tag

    @cached_property
    def table(self) -> "FlagTable":
        return FlagTable(self.syntax, json.loads(self._file.read_bytes()))

    @cached_property
    def lists(self) -> ListArgs:
        """Flags that take lists, as their newest version does."""
        takes = [
            (flag.name.replace("_", "-"), flag.takes(max(flag.present))) for flag in self.table.flags if flag.present
        ]
        several, repeated = (frozenset(name for name, how in takes if how == one) for one in ("many", "append"))
        return ListArgs(several, repeated)

    def is_own_image(self, image: str | None) -> bool:
        """Whether the image is one that the engine's own makers, or NVIDIA, build from the released source."""
        return image is None or re.match(self._own_images, image) is not None

    def tagged_version(self, image: str) -> str | None:
        hit = re.search(self._version_in_tag, image)
        return hit[1] if hit else None


@dataclass(frozen=True, slots=True)
class Versions:
    """Versions that a profile may mean, as places in the table's list. `exact`: the table has this very version."""

    places: tuple[int, ...]
    exact: bool
    text: str
    """Versions as a message names them: "0.32", "0.11 to 0.32"."""


class FlagFacts:
    """Flag of the table; facts that changed over the versions are asked for with a version's place."""

    def __init__(self, row: Mapping[str, Any], table: "FlagTable") -> None:
        self._row = row
        self._table = table
        self.spellings: dict[str, frozenset[int]] = {
            name: table.places(span) for name, _, span in (one.partition("@") for one in row["names"])
        }
        self.instead: str | None = row.get("instead")

    @property
    def name(self) -> str:
        return next(iter(self.spellings)).lstrip("-")

    @cached_property
    def present(self) -> frozenset[int]:
        return frozenset().union(*self.spellings.values()) - self.having("state", "removed")

    def having(self, key: str, value: str) -> frozenset[int]:
        found = self._row.get(key)
        if isinstance(found, dict):
            return self._table.places(found[value]) if value in found else frozenset()
        return self._table.all if found == value else frozenset()

    def takes(self, place: int) -> Takes:
        found: Takes = self._at("takes", place)
        return found

    def type(self, place: int) -> str:
        return str(self._at("type", place))

    def choices(self, place: int) -> tuple[str, ...] | None:
        """Values taken at this place; None where any is."""
        return self._listed("choices", place)

    def keys(self, place: int) -> tuple[str, ...] | None:
        """Keys of a JSON value at this place; None where any may be there."""
        return self._listed("keys", place)

    def listed_ever(self, key: Literal["choices", "keys"], value: str) -> frozenset[int]:
        spans = dict(one.rpartition("@")[::2] if "@" in one else (one, "") for one in self._row.get(key, ()))
        return self._table.places(spans[value]) if value in spans else frozenset()

    @property
    def folds(self) -> bool:
        """Whether case and hyphens do not matter in the value."""
        return bool(self._row.get("folds"))

    @cached_property
    def limits(self) -> dict[str, float]:
        """Loosest limits that any version states: at most one of `low` and `above`, one of `high` and `below`."""
        least = [(limit, key) for key in ("low", "above") for limit in self._stated(key)]
        most = [(limit, key) for key in ("below", "high") for limit in self._stated(key)]
        found = {}
        if least:
            limit, key = min(least, key=lambda one: (one[0], one[1] == "above"))
            found[key] = limit
        if most:
            limit, key = max(most, key=lambda one: (one[0], one[1] == "high"))
            found[key] = limit
        return found

    def _stated(self, key: str) -> list[float]:
        stated = self._row.get(key)
        if stated is None:
            return []
        return list(map(float, stated)) if isinstance(stated, dict) else [float(stated)]

    def _at(self, key: str, place: int) -> Any:
        found = self._row.get(key)
        if not isinstance(found, dict):
            return found
        return next((value for value, span in found.items() if place in self._table.places(span)), None)

    def _listed(self, key: str, place: int) -> tuple[str, ...] | None:
        listed = self._row.get(key)
        if listed is None or place not in self._table.places(self._row.get(f"{key}_of", "")):
            return None
        parts = (one.partition("@") if "@" in one else (one, "", "") for one in listed)
        return tuple(value for value, _, span in parts if place in self._table.places(span))


class FlagTable:
    """All flags of one engine."""

    def __init__(self, syntax: FlagSyntax, data: Mapping[str, Any]) -> None:
        self.syntax = syntax
        self.versions: tuple[str, ...] = tuple(data["versions"])
        self.all = frozenset(range(len(self.versions)))
        self._spans: dict[str, frozenset[int]] = {"": self.all}
        self.flags = tuple(FlagFacts(row, self) for row in data["flags"])

    @cached_property
    def by_word(self) -> dict[str, FlagFacts]:
        found: dict[str, FlagFacts] = {}
        for flag in reversed(self.flags):
            for word in flag.spellings:
                found[self.normal(word)] = flag
                if word.startswith("--") and flag.having("takes", "toggle"):
                    found.setdefault(f"--no-{self.normal(word)[2:]}", flag)
        return found

    def normal(self, word: str) -> str:
        if self.syntax.is_literal or not word.startswith("--"):
            return word
        return f"--{word[2:].replace('_', '-')}"

    def find(self, key: str) -> FlagFacts | None:
        """The flag that a profile's key becomes on the command line; None without one."""
        word = self.normal(f"--{key}" if len(key) > 1 else f"-{key}")
        if (hit := self.by_word.get(word)) is not None or not self.syntax.abbreviates or len(key) == 1:
            return hit
        first = bisect_left(self._sorted, word)
        beginning = takewhile(lambda known: known.startswith(word), islice(self._sorted, first, None))
        longer = {id(flag): flag for flag in map(self.by_word.__getitem__, beginning)}
        return next(iter(longer.values())) if len(longer) == 1 else None

    @cached_property
    def _sorted(self) -> list[str]:
        return sorted(self.by_word)

    def places(self, span: str) -> frozenset[int]:
        """Places in a span such as `0.17:` or `:0.13,0.15:0.18`."""
        if span not in self._spans:
            self._spans[span] = frozenset(place for run in span.split(",") for place in self._run(run))
        return self._spans[span]

    def meant(self, version: str | None) -> Versions:
        """Return the versions that a text such as "0.19.1", "b8200" or None may mean."""
        found = None if version is None else _number(version)
        if version is None or found is None:
            return Versions(tuple(sorted(self.all)), False, f"{self.versions[0]} to {self.versions[-1]}")
        numbers = [_number(one) for one in self.versions]
        if not self.syntax.has_builds:
            found = found[: len(numbers[0] or ())]
        if found in numbers:
            place = numbers.index(found)
            return Versions((place,), not self.syntax.has_candidates, self.versions[place])
        return _between(numbers, found, version)

    def _run(self, run: str) -> range:
        since, _, until = run.partition(":")
        start = self.versions.index(since) if since else 0
        return range(start, self.versions.index(until) if until else len(self.versions))


def _between(numbers: Sequence[tuple[int, ...] | None], found: tuple[int, ...], version: str) -> Versions:
    """Return the nearest known versions below and above one that the table lacks."""
    known = [(place, number) for place, number in enumerate(numbers) if number is not None]
    below = [place for place, number in known if number < found]
    above = [place for place, number in known if number > found]
    return Versions((*below[-1:], *above[:1]), bool(below and above), version)


def _number(text: str) -> tuple[int, ...] | None:
    """Comparable numbers of a version; a llama.cpp build sorts before its releases v0.4 and later."""
    if hit := _BUILD.fullmatch(text):
        return (0, 0, int(hit[1]))
    hit = re.match(r"v?(\d+(?:\.\d+)+)(-dev)?", text)
    if hit is None:
        return None
    numbers = tuple(map(int, hit[1].split(".")))
    return (*numbers, 1) if hit[2] else numbers


def nearby(facts: FlagFacts, table: FlagTable) -> Iterator[str]:
    """Words about the versions that have a flag: "since 0.17", "until 0.18"."""
    first, last = min(facts.present), max(facts.present)
    if first > 0:
        yield f"since {table.versions[first]}"
    if last < len(table.versions) - 1:
        yield f"until {table.versions[last]}"
