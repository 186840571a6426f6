"""Flags that an engine's program knows, as its own `--help` lists them.

Parses help texts of argparse (vLLM, SGLang), click (TensorRT-LLM) and llama.cpp.
Pure.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from functools import cached_property

_DEFINITION = re.compile(r" {0,8}(--?[A-Za-z].*)")
"""Start of a line that defines flags; lines of prose are indented further (24 columns in argparse, 40 in llama.cpp)."""
_VALUES = re.compile(r"\{[^}]*\}|<[^>]*>|\[[^\]]*\]")
"""Placeholders of values: `{auto,fp8}`, `<0|1>`, `[A ...]`."""
_FLAG = re.compile(r"(?<![\w.-])--?[A-Za-z][\w.-]*")
_REMOVED = re.compile(r"\bargument has been removed\b")
"""Words by which llama.cpp's help marks a flag that it refuses."""
FEWEST = 8
"""Fewest flags of an engine's help; a text with fewer is an error, or another program's usage."""
LONGEST = 4096
"""Longest line that is read, in characters; vLLM's longest list of choices takes 300."""


@dataclass(frozen=True)
class KnownFlags:
    """Flags of one program, spellings grouped by definition, with hyphens: `("-c", "--ctx-size")`."""

    definitions: tuple[tuple[str, ...], ...]

    @cached_property
    def spellings(self) -> frozenset[str]:
        """All spellings, with hyphens where some programs have underscores."""
        return frozenset(_hyphens(flag) for names in self.definitions for flag in names)

    def has(self, name: str) -> bool:
        """Whether `name`, without its leading hyphens, is exactly the name of a flag."""
        return f"--{name}" in self.spellings

    def takes(self, flag: str, *, abbreviated: bool) -> bool:
        """Whether the program would accept this word.

        `abbreviated`: it accepts the beginning of a long name. Short flags always pass.
        """
        word = _hyphens(flag).partition(".")[0]  # `--a.b 1` is vLLM's short way to a JSON object
        if word in self.spellings or not word.startswith("--"):
            return True
        return abbreviated and any(known.startswith(word) for known in self.spellings)

    def nearest(self, flag: str) -> str | None:
        """Find the long name, without hyphens, of the most similar flag."""
        by_bare = {_hyphens(one).lstrip("-"): names for names in self.definitions for one in names}
        close = difflib.get_close_matches(_hyphens(flag).lstrip("-"), by_bare, n=1)
        return max(by_bare[close[0]], key=len).lstrip("-") if close else None


def parse_help(text: str) -> KnownFlags | None:
    """Parse the flags of a help text; None when it is not an engine's. Never raises."""
    found: list[tuple[str, ...]] = []
    lines = [line[:LONGEST] for line in text.splitlines()]
    for line, below in zip(lines, [*lines[1:], ""], strict=False):
        if (hit := _DEFINITION.fullmatch(line)) is None:
            continue
        said = re.sub(r"([,/]) +", r"\1 ", hit[1])  # llama.cpp fills up with spaces after a short name
        defined, _, about = said.partition("  ")
        flags = tuple(_FLAG.findall(_VALUES.sub("", defined)))
        if flags and not _REMOVED.search(about or below):
            found.append(flags)
    known = KnownFlags(tuple(found))
    return known if len(found) >= FEWEST and known.has("help") else None


def _hyphens(flag: str) -> str:
    return flag[:2] + flag[2:].replace("_", "-")
