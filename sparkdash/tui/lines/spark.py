"""Sparklines and bars made of block characters.

Rule: unmeasured values are blank; a measured zero is the lowest bar.

Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

BARS = " ▁▂▃▄▅▆▇█"
PARTS = " ▏▎▍▌▋▊▉█"


def sparkline(values: Sequence[float | None], top: float, rows: int = 1) -> list[str]:
    """Draw a sparkline in `rows` strings, top row first, one character per value; `top` fills the height."""
    levels = [_level(value, top, rows * 8) for value in values]
    return ["".join(BARS[min(max(level - row * 8, 0), 8)] for level in levels) for row in reversed(range(rows))]


def _level(value: float | None, top: float, full: int) -> int:
    if value is None:
        return 0
    return max(1, min(round(value / top * full), full)) if top > 0 else 1


def meter(share: float, width: int) -> tuple[str, str]:
    """Draw a bar of `width` cells; return its full and its empty part."""
    eighths = round(max(0.0, min(share, 1.0)) * width * 8)
    full, part = divmod(eighths, 8)
    done = "█" * full + (PARTS[part] if part else "")
    return done, "─" * (width - len(done))
