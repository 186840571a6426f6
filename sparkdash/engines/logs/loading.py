"""Progress of a load, read from the start-up log line by line.

Owns: how a matching line becomes a LoadProgress. Must not know any engine's phrases; each dialect brings its own.
Pure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sparkdash.domain.engine import LoadProgress

DETAIL = 100
"""Length of a log line on screen, in characters."""

_PREFIX = re.compile(
    r"^(?:\([A-Za-z_][^)]*\) *){0,2}"  # (EngineCore pid=14) of vLLM, behind (RayWorkerProc pid=9, ip=…) over Ray
    r"(?:(?:DEBUG|INFO|WARNING|ERROR|CRITICAL):? +(?:\d\d-\d\d \d\d:\d\d:\d\d *)?)?"
    r"(?:\[[^\]]*\] *)*"  # [file.py:7] of vLLM, [date TP0] of SGLang, [date] [TRT-LLM] [I] of TensorRT-LLM
    r"(?:\d+(?:\.\d+){3} [A-Z] (?:\w+ +)?)?"  # 0.00.005.469 I srv of llama.cpp
)

_NODE = re.compile(r"\[[a-z0-9][a-z0-9-]{0,30}\] (?=\()")  # [spark2] before the lines of another node's vLLM


@dataclass(frozen=True, slots=True)
class Phrase:
    """Log line that reports progress. The pattern may name `pct`, or `done` and `total`; else `fraction` holds."""

    stage: str
    pattern: re.Pattern[str]
    fraction: float | None = None


def phrase(stage: str, pattern: str, fraction: float | None = None) -> Phrase:
    """Make a Phrase from a regular expression, searched anywhere in the line."""
    return Phrase(stage, re.compile(pattern), fraction)


def match_progress(line: str, phrases: Sequence[Phrase]) -> LoadProgress | None:
    """Return the progress of the first matching phrase; None when none matches."""
    for known in phrases:
        if hit := known.pattern.search(line):
            return LoadProgress(stage=known.stage, fraction=_fraction(known, hit), detail=detail(line))
    return None


def first_match(lines: Sequence[str], pattern: re.Pattern[str]) -> re.Match[str] | None:
    """Return the match of the first line with the pattern; None without one."""
    return next((hit for line in lines if (hit := pattern.search(line))), None)


def detail(line: str) -> str:
    """Shorten a log line: without its time stamp and origin, at most DETAIL characters; a node's name stays."""
    node = _NODE.match(line)
    start = node.end() if node else 0
    text = line[:start] + _PREFIX.sub("", line[start:]).strip()
    return text if len(text) <= DETAIL else text[: DETAIL - 1] + "…"


def _fraction(known: Phrase, hit: re.Match[str]) -> float | None:
    groups = hit.groupdict()
    if groups.get("total"):
        return min(1.0, int(groups["done"]) / max(1, int(groups["total"])))
    if groups.get("pct"):
        return min(1.0, int(groups["pct"]) / 100)
    return known.fraction
