"""Escape and the key behind it, where both come in one read: a fast hand, or a terminal multiplexer.

Owns: the entries of Textual's table of sequences for these pairs. Rule: they are two keys. Textual takes Escape and a
digit for Option and a digit of a Mac, "£" for 3, and Escape and a letter for a stray "^".
"""

from __future__ import annotations

import string
from typing import Any, NamedTuple, cast

from textual._ansi_sequences import ANSI_SEQUENCES_KEYS
from textual.keys import Keys

LONGER = "OPX"
"""Characters that begin a longer sequence behind Escape; brackets and the like are no keys of these screens."""


class _NamedKey(NamedTuple):
    """Key as Textual's table has it: an object with a name."""

    value: str


def separate_escape() -> None:
    """Let Textual read Escape and a letter or a digit as two keys; words' ends (`ESC b`, `ESC f`) stay one."""
    table = cast("dict[str, Any]", ANSI_SEQUENCES_KEYS)
    for char in string.digits + string.ascii_letters:
        sequence = f"\x1b{char}"
        if char not in LONGER and not isinstance(table.get(sequence), tuple):
            table[sequence] = (Keys.Escape, _NamedKey(char))
