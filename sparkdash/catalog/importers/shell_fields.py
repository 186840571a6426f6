"""Field splitting: how a shell splits the text of an unquoted variable into words.

Pure.
"""

from __future__ import annotations


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
