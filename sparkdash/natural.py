"""Natural order: names with numbers as people order them, model-2 before model-10.

Owns: the sort key of lists of names. Must not know what is named.

Pure.
"""

from __future__ import annotations

import re

_DIGITS = re.compile(r"([0-9]+)")

Key = tuple[tuple[str | tuple[int, str], ...], str]


def natural(name: str) -> Key:
    """Sort key for names: digits count as one number, case decides last. Numbers may be of any length."""
    parts = _DIGITS.split(name.casefold())  # text and digits in turn, beginning with text, so that like meets like
    return tuple(_number(part) if odd % 2 else part for odd, part in enumerate(parts)), name


def _number(digits: str) -> tuple[int, str]:
    shown = digits.lstrip("0")
    return len(shown), shown
