"""Large figures of three and five rows.

Rule: a figure that is not known is a dash; nothing else of the screen is this large.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

_THREE: Mapping[str, tuple[str, ...]] = {
    "0": ("┏━┓", "┃ ┃", "┗━┛"),
    "1": ("╺┓ ", " ┃ ", "╺┻╸"),
    "2": ("╺━┓", "┏━┛", "┗━╸"),
    "3": ("╺━┓", " ━┫", "╺━┛"),
    "4": ("╻ ╻", "┗━┫", "  ╹"),
    "5": ("┏━╸", "┗━┓", "╺━┛"),
    "6": ("┏━╸", "┣━┓", "┗━┛"),
    "7": ("╺━┓", "  ┃", "  ╹"),
    "8": ("┏━┓", "┣━┫", "┗━┛"),
    "9": ("┏━┓", "┗━┫", "╺━┛"),
    "-": ("   ", "╺━╸", "   "),
    "~": ("  ", "╭╯", "  "),
    ".": (" ", " ", "."),
}
_FIVE: Mapping[str, tuple[str, ...]] = {
    "0": ("██████", "██  ██", "██  ██", "██  ██", "██████"),
    "1": ("████  ", "  ██  ", "  ██  ", "  ██  ", "██████"),
    "2": ("██████", "    ██", "██████", "██    ", "██████"),
    "3": ("██████", "    ██", " █████", "    ██", "██████"),
    "4": ("██  ██", "██  ██", "██████", "    ██", "    ██"),
    "5": ("██████", "██    ", "██████", "    ██", "██████"),
    "6": ("██████", "██    ", "██████", "██  ██", "██████"),
    "7": ("██████", "    ██", "    ██", "    ██", "    ██"),
    "8": ("██████", "██  ██", "██████", "██  ██", "██████"),
    "9": ("██████", "██  ██", "██████", "    ██", "██████"),
    "-": ("      ", "      ", "██████", "      ", "      "),
    "~": ("     ", " ██ █", "█ ██ ", "     ", "     "),
    ".": ("  ", "  ", "  ", "  ", "██"),
}


def large(figure: str, rows: int = 3) -> list[str]:
    """Draw a figure of the characters 0-9, ".", "-" and "~" in `rows` strings of equal length; `rows` is 3 or 5."""
    glyphs, gap = (_FIVE, " ") if rows == 5 else (_THREE, "")
    drawn = [glyphs[each] for each in figure if each in glyphs]
    return [gap.join(glyph[row] for glyph in drawn) for row in range(rows)]
