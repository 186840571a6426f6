"""Text for people: quantities with units, names in natural order, and text from elsewhere made printable. Pure."""

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


_CONTROLS = (
    r"\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 but tab and newline, DEL, and C1, which a terminal in UTF-8 obeys as well
    r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # turn the reading direction: what is read is not what is there
    r"\u2028\u2029"  # further line ends
    r"\ud800-\udfff"  # halves of characters, which cannot be written at all
    r"\U000e0000-\U000e007f"  # tags, which nobody sees
)
_STEERS = re.compile(f"[{_CONTROLS}]")
_STEERS_OR_BREAKS = re.compile(rf"[\t\n{_CONTROLS}]")


def printable(text: str) -> str:
    """Escape every control character of `text` as `\\uXXXX`; line ends and tabs stay. Idempotent."""
    return text if text.isascii() and text.isprintable() else _STEERS.sub(_escaped, text)


def one_line(text: str) -> str:
    """Escape as `printable`, and tabs and line ends too: for text that must stay on its line."""
    return text if text.isascii() and text.isprintable() else _STEERS_OR_BREAKS.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code <= 0xFFFF:
        return f"\\u{code:04x}"
    high, low = divmod(code - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"


KIB = 1024
MIB = 1024**2
GIB = 1024**3

DASH = "-"
_SHORT = ((999.5e6, 1e9, "G"), (999.5e3, 1e6, "M"), (999.5, 1e3, "k"))
"""Least value that is written with a unit, the unit, and its letter."""


def number(value: float | None, digits: int = 0, suffix: str = "") -> str:
    """Format `value` with a fixed number of digits and an optional suffix; "-" when unknown."""
    return DASH if value is None else f"{value:.{digits}f}{suffix}"


def fitted(value: float | None, cells: int, digits: int = 0) -> str:
    """Format `value` in at most `cells` cells: with fewer decimals than `digits`, then in k, M, G where it is large.

    A figure is never cut: one for which not even that is enough keeps its shortest form.
    """
    if value is None:
        return DASH
    told = [f"{value:.{places}f}" for places in range(digits, -1, -1)]
    unit, name = next(((unit, name) for least, unit, name in _SHORT if abs(value) >= least), (1.0, ""))
    told += [f"{value / unit:.{places}f}{name}" for places in (1, 0)]
    return next((text for text in told if len(text) <= cells), told[-1])


def counted(count: int, noun: str) -> str:
    ending = "" if count == 1 else "es" if noun.endswith("ch") else "s"
    return f"{count} {noun}{ending}"


def percent(share: float | None, digits: int = 0) -> str:
    """Format a share of 0..1 as a percentage with a space, as in "76 %"."""
    return DASH if share is None else f"{share * 100:.{digits}f} %"


def gib(count: float | None, digits: int = 1) -> str:
    """Format bytes as GiB: one digit below 10 GiB, and two where one would show 0 for something."""
    if count is None:
        return DASH
    amount = abs(count) / GIB
    least = 0 if amount >= 10 or not count else 1 if amount >= 0.05 else 2
    return f"{count / GIB:.{max(digits, least)}f} GiB"


def size(count: int | None) -> str:
    if count is None:
        return DASH
    for unit, name in ((GIB, "GiB"), (MIB, "MiB")):
        if count >= unit:
            return f"{count / unit:.{1 if count < 10 * unit else 0}f} {name}"
    return f"{-(-count // KIB)} KiB"


def bit_rate(bytes_s: float | None) -> str:
    """Format bytes per second as the bits per second that networks are sold by: 3.1 Gb/s, 240 Mb/s."""
    if bytes_s is None:
        return DASH
    bits = bytes_s * 8
    if bits >= 99.5e6:
        return f"{bits / 1e9:.{0 if bits >= 99.5e9 else 1}f} Gb/s"
    return f"{bits / 1e6:.{0 if bits >= 9.5e6 or not bits else 1}f} Mb/s"


def tokens(count: float | None) -> str:
    """Format a token count as owners write it: 950, 12.6k, 512k, 1.4M."""
    if count is None:
        return DASH
    if count < 1000:
        return f"{count:.0f}"
    if count < 1e6:
        return f"{count / 1e3:.1f}k".replace(".0k", "k")
    return f"{count / 1e6:.1f}M".replace(".0M", "M")


def age(seconds: float) -> str:
    """Format a running time in whole seconds: 0s, 9s, 3m40s."""
    return duration(seconds) if seconds >= 10 else f"{max(int(seconds), 0)}s"


def duration(seconds: float | None) -> str:
    """Format seconds as people write them: 0.4s, 12s, 3m40s, 2h14m, 5d03h."""
    if seconds is None:
        return DASH
    if seconds < 10:
        return f"{seconds:.1f}s"
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 86400}d{whole % 86400 // 3600:02d}h"
