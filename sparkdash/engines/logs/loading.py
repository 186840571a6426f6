"""Reading an engine's start-up log, one line at a time.

Owns: how a matching line becomes a LoadProgress. Must not know: any engine's phrases; each dialect brings its own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sparkdash.domain.engine import LoadProgress

DETAIL = 100
"""Characters of a log line that a screen has room for."""

_PREFIX = re.compile(
    r"^(?:\([A-Za-z_][^)]*\) *)?"  # (EngineCore pid=14) of vLLM
    r"(?:(?:DEBUG|INFO|WARNING|ERROR|CRITICAL):? +(?:\d\d-\d\d \d\d:\d\d:\d\d *)?)?"
    r"(?:\[[^\]]*\] *)*"  # [file.py:7] of vLLM, [date TP0] of SGLang, [date] [TRT-LLM] [I] of TensorRT-LLM
    r"(?:\d+(?:\.\d+){3} [A-Z] (?:\w+ +)?)?"  # 0.00.005.469 I srv of llama.cpp
)


@dataclass(frozen=True, slots=True)
class Phrase:
    """A line that tells of progress. The pattern may name groups `pct`, or `done` and `total`; else `fraction` holds."""

    stage: str
    pattern: re.Pattern[str]
    fraction: float | None = None


def phrase(stage: str, pattern: str, fraction: float | None = None) -> Phrase:
    """A Phrase from a regular expression that is searched anywhere in the line."""
    return Phrase(stage, re.compile(pattern), fraction)


def match_progress(line: str, phrases: Sequence[Phrase]) -> LoadProgress | None:
    """What the first matching phrase says; None when none matches."""
    for known in phrases:
        if hit := known.pattern.search(line):
            return LoadProgress(stage=known.stage, fraction=_fraction(known, hit), detail=detail(line))
    return None


def first_match(lines: Sequence[str], pattern: re.Pattern[str]) -> re.Match[str] | None:
    """The first line in which the pattern is found; None when it is in none."""
    return next((hit for line in lines if (hit := pattern.search(line))), None)


def detail(line: str) -> str:
    """The line without its time stamp and origin, and not too long."""
    text = _PREFIX.sub("", line).strip()
    return text if len(text) <= DETAIL else text[: DETAIL - 1] + "…"


def _fraction(known: Phrase, hit: re.Match[str]) -> float | None:
    groups = hit.groupdict()
    if groups.get("total"):
        return min(1.0, int(groups["done"]) / max(1, int(groups["total"])))
    if groups.get("pct"):
        return min(1.0, int(groups["pct"]) / 100)
    return known.fraction
