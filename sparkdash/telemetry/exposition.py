"""Parser for the engines' text expositions, in every dialect.

prometheus_client's two parsers each refuse or garble one dialect (vLLM's Rust frontend sends OpenMetrics, the rest
sends the classic text), so this parser keys by sample name and ignores TYPE lines. Pure.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import isnan
from typing import NamedTuple

_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(,?)')
_OPEN = re.compile(r"\s*\{")
_CLOSE = re.compile(r"\s*\}")
# A value, perhaps a timestamp, perhaps an OpenMetrics exemplar, which is dropped.
_VALUE = re.compile(r"\s*([^\s#]+)(?:\s+[-+.0-9eE]+)?\s*(?:#.*)?$")
_END = re.compile(r"\n# EOF[^\S\n]*(?:\n|\Z)")  # begins with letters, for which re searches quickly
_NAME_END = re.compile(r"[{\s]")
_ESCAPE = re.compile(r"\\(.)")
_ESCAPED = {"n": "\n"}
_LARGEST = 2.0**63
"""Bound of plausible values: larger ones are garbage, whose sums would not stay finite."""


class ParsedSample(NamedTuple):
    """Sample line with its labels and value."""

    labels: dict[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class Scrape:
    """Samples of one scrape by name. A name that is absent or has no finite value gives None, never 0."""

    samples: Mapping[str, tuple[ParsedSample, ...]]

    def first(self, names: Collection[str]) -> str | None:
        return next((name for name in names if name in self.samples), None)

    def without_copies(self, labels: Collection[str]) -> "Scrape":
        """Keep the largest of the samples that differ in these labels alone."""
        return Scrape({name: _largest(found, labels) for name, found in self.samples.items()})

    def total(self, name: str | None, label: str | None = None, values: Collection[str] = ()) -> float | None:
        """Sum over all label sets, or those whose `label` is one of `values`; a series without it is summed whole."""
        found = self.finite(name)
        if label is not None and any(label in sample.labels for sample in found):
            return sum(sample.value for sample in found if sample.labels.get(label) in values)
        return sum(sample.value for sample in found) if found else None

    def mean(self, name: str | None) -> float | None:
        found = self.finite(name)
        return sum(sample.value for sample in found) / len(found) if found else None

    def by(self, name: str | None, label: str) -> dict[str, float]:
        """Sums by one label's value; samples without the label are left out."""
        sums: dict[str, float] = {}
        for sample in self.finite(name):
            if (key := sample.labels.get(label)) is not None:
                sums[key] = sums.get(key, 0.0) + sample.value
        return sums

    def info(self, name: str | None) -> tuple[dict[str, str], ...]:
        return tuple(sample.labels for sample in self.samples.get(name or "", ()))

    def finite(self, name: str | None) -> list[ParsedSample]:
        return [sample for sample in self.samples.get(name or "", ()) if abs(sample.value) < _LARGEST]


EMPTY = Scrape({})


Parsed = tuple[str, ParsedSample]
"""Name of a sample, and what its line says."""


class ExpositionReader:
    """Parser of one engine's expositions; lines of the last text are not parsed again, as most never change."""

    def __init__(self, wanted: Collection[str] | None = None) -> None:
        self._wanted = wanted
        self._lines: dict[str, Parsed | None] = {}
        """Lines of the last text, with what they say."""
        self._text = ""
        self._scrape = EMPTY

    def read(self, text: str) -> Scrape:
        """Parse every sample, or only the wanted ones; the same object as before when none of them has changed.

        Never raises. Lines that are no sample are skipped, and so is everything after `# EOF`. A JSON body
        (TensorRT-LLM's `[…]`, an error's `{…}`) has no samples. `*_created` series, which only look like counters, are
        dropped.
        """
        if text == self._text:
            return self._scrape
        self._text = text
        lines = [] if text.lstrip()[:1] in ("{", "[") else _END.split(f"\n{text}", 1)[0].split("\n")
        known, distinct = self._lines, set(lines)
        for line in known.keys() - distinct:
            del known[line]
        known.update((line, _parsed(line.strip(), self._wanted)) for line in distinct - known.keys())
        samples: dict[str, list[ParsedSample]] = {}
        for name, sample in filter(None, map(known.get, lines)):
            samples.setdefault(name, []).append(sample)
        scrape = Scrape({name: tuple(found) for name, found in samples.items()})
        if scrape != self._scrape:
            self._scrape = scrape
        return self._scrape


def parse_exposition(text: str, wanted: Collection[str] | None = None) -> Scrape:
    """Parse one text as `ExpositionReader` does (`wanted`: a set or dict: it is searched once per line)."""
    return ExpositionReader(wanted).read(text)


def _largest(found: tuple[ParsedSample, ...], labels: Collection[str]) -> tuple[ParsedSample, ...]:
    if not any(label in sample.labels for sample in found for label in labels):
        return found
    kept: dict[frozenset[tuple[str, str]], ParsedSample] = {}
    for sample in found:
        key = frozenset((name, value) for name, value in sample.labels.items() if name not in labels)
        before = kept.get(key)
        if before is None or sample.value > before.value or isnan(before.value):
            kept[key] = sample
    return tuple(kept.values())


def _parsed(line: str, wanted: Collection[str] | None) -> Parsed | None:
    if line.startswith("#"):
        return None
    name = line[: end.start()] if (end := _NAME_END.search(line)) else line
    if (wanted is not None and name not in wanted) or name.endswith("_created"):
        return None
    sample = _sample(line, name)
    return sample and (name, sample)


def _sample(line: str, name: str) -> ParsedSample | None:
    position = len(name)
    labels: dict[str, str] = {}
    if brace := _OPEN.match(line, position):
        position = brace.end()
        while found := _LABEL.match(line, position):
            labels[found[1]] = _unescaped(found[2])
            position = found.end()
            if not found[3]:
                break
        if not (close := _CLOSE.match(line, position)):
            return None
        position = close.end()
    value = _VALUE.match(line, position)
    number = _number(value[1]) if value and name else None
    return None if number is None else ParsedSample(labels, number)


def _number(word: str) -> float | None:
    if "_" in word or not word.isascii():  # float() would take 1_000 and foreign digits
        return None
    try:
        return float(word)
    except ValueError:
        return None


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    return _ESCAPE.sub(lambda found: _ESCAPED.get(found[1], found[1]), text)
