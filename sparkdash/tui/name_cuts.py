"""Names cut to a width so that they can still be told apart.

Owns: where a name is cut among the others that may stand beside it. Must not know: which names there are.

Pure.
"""

from __future__ import annotations

from functools import lru_cache

from rich.cells import cell_len, set_cell_size

from sparkdash.tui.ink import ELLIPSIS, shorten, strip_controls

HEAD = 2
"""Cells that stay of the beginning where only a part within the name differs."""


@lru_cache(maxsize=4096)
def shorten_apart(name: str, width: int, others: frozenset[str]) -> str:
    """Cut `name` in its middle to `width` cells, at a place where none of `others` could be meant.

    Where no width is enough for that, the middle it is.
    """
    name = strip_controls(name)
    if cell_len(name) <= width or width < 1:
        return shorten(name, width)
    alike = frozenset(strip_controls(other) for other in others) - {name}
    half = (width - 1) // 2
    for tail in sorted(range(width), key=lambda cells: abs(cells - half)):
        cut = _cut(name, width, tail)
        if not any(_means(cut, other) for other in alike):
            return cut
    return _around(name, width, alike) or shorten(name, width)


def _cut(name: str, width: int, tail: int) -> str:
    head = set_cell_size(name, width - 1 - tail).rstrip()
    end = len(name)
    while end and cell_len(name[end - 1 :]) <= tail:
        end -= 1
    return f"{head}{ELLIPSIS}{name[end:]}"


def _means(cut: str, name: str) -> bool:
    """Whether the cut could be one of this name."""
    head, *parts, tail = cut.split(ELLIPSIS)
    if not name.startswith(head) or not name.endswith(tail):
        return False
    at = len(head)
    for part in parts:
        found = name.find(part, at)
        if found < 0:
            return False
        at = found + len(part)
    return at + len(tail) <= len(name)


def _around(name: str, width: int, alike: frozenset[str]) -> str | None:
    """Cut a name to its beginning and a part within it that no other has; one that begins a word is preferred."""
    room = width - HEAD - 2
    places = sorted(range(HEAD, len(name)), key=lambda at: name[at - 1].isalnum())
    for at in places if room > 0 else ():
        cut = f"{set_cell_size(name, HEAD)}{ELLIPSIS}{set_cell_size(name[at:], room).rstrip()}{ELLIPSIS}"
        if not any(_means(cut, other) for other in alike):
            return cut
    return None
