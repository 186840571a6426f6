"""How a shell splits the text of an unquoted variable into words, and reads the escapes of `$'…'`.

Pure.
"""

from __future__ import annotations

import re

ESCAPED = re.compile(r"\$'((?:[^'\\]|\\.)*)'", re.DOTALL)
"""Text in `$'…'`, its escapes as written."""
_ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|([0-7]{1,3})|(.))", re.DOTALL)
_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "f": "\f", "v": "\v"}


def unescaped(text: str) -> str:
    """Replace the escapes of `$'…'` by what they stand for; an unknown one stays as written."""

    def put(hit: re.Match[str]) -> str:
        for digits, base in ((hit[1], 16), (hit[2], 16), (hit[3], 8)):
            if digits:
                code = int(digits, base)
                return hit[0] if code == 0 or 0xD800 <= code < 0xE000 else chr(code)
        return _LETTERS.get(hit[4]) or (hit[4] if hit[4] in "\\'\"?" else hit[0])

    return _ESCAPE.sub(put, text)


def split_fields(parts: list[str]) -> list[str]:
    """Split the last part, the text of an unquoted variable, at its white space, as a shell does.

    Returns the words that are complete; `parts` keeps what the next characters are added to.
    """
    text = parts.pop()
    pieces = text.split()
    if not pieces:
        if text and any(parts):
            done = ["".join(parts)]
            parts.clear()
            return done
        return []
    done = []
    if text[0].isspace() and any(parts):
        done.append("".join(parts))
        parts.clear()
    if len(pieces) > 1:
        done.append("".join(parts) + pieces[0])
        parts.clear()
        done += pieces[1:-1]
    parts.append(pieces[-1])
    if text[-1].isspace():
        done.append("".join(parts))
        parts.clear()
    return done
