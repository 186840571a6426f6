"""Printable text: escapes control characters in text from elsewhere, so that a terminal shows instead of obeying
them.

Engine logs, client names, profile names, answers of podman and the hub: any of them may hold sequences that set a
title, hide text, move the cursor, or turn the reading direction. Such characters are escaped as JSON does, so that a
JSON document stays the same document.

Pure.
"""

from __future__ import annotations

import re

_CONTROLS = (
    r"\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 but tab and newline, DEL, and C1, which a terminal in UTF-8 obeys as well
    r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # turn the reading direction: what is read is not what is there
    r"\u2028\u2029"  # further line ends
    r"\ud800-\udfff"  # halves of characters, which cannot be written at all
    r"\U000e0000-\U000e007f"  # tags, which nobody sees
)
_STEERS = re.compile(f"[{_CONTROLS}]")
_STEERS_OR_BREAKS = re.compile(rf"[\t\n{_CONTROLS}]")
_BEYOND = 0xFFFF


def printable(text: str) -> str:
    """Escape every control character of `text` as `\\uXXXX`; line ends and tabs stay. Idempotent."""
    return text if text.isascii() and text.isprintable() else _STEERS.sub(_escaped, text)


def one_line(text: str) -> str:
    """Escape as `printable`, and tabs and line ends too: for text that must stay on its line."""
    return text if text.isascii() and text.isprintable() else _STEERS_OR_BREAKS.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code <= _BEYOND:
        return f"\\u{code:04x}"
    high, low = divmod(code - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"
