"""Lines of styled text, the only thing that panels draw.

Rule: foreign text (log lines, client names) enters through `styled`, which removes control characters. Pure.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from rich.cells import cached_cell_len, cell_len, chop_cells, set_cell_size

from sparkdash.units import DASH


class Style(StrEnum):
    """Meaning of a colour; `theme` maps each style to a style."""

    PLAIN = "plain"
    STRONG = "strong"
    DIM = "dim"
    """Labels, units, unknown and stale values."""
    FAINT = "faint"
    """Frames and empty parts of bars."""
    GOOD = "good"
    TRACE = "trace"
    """History of healthy figures: sparklines, quieter than the figure beside them."""
    FILL = "fill"
    """Bars of what is neither good nor bad: memory. Quieter than any text."""
    WARN = "warn"
    BAD = "bad"
    """State that demands action."""
    HIT = "hit"
    """Text that was searched for; `lit` marks the place that the search stands at."""


class Span(NamedTuple):
    """Run of text in one style; `lit` marks the cursor's row."""

    text: str
    style: Style
    lit: bool = False


Line = tuple[Span, ...]
LinesForWidth = Callable[[int], Sequence[Line]]
"""Function that lays out text for a width in cells."""
EMPTY: Line = ()
BLANK = Span(" ", Style.PLAIN)
_RULE = Span("─", Style.FAINT)
ELLIPSIS = "…"

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-_])")
_HALF_FIGURE = re.compile(r"(?<![^\W\d_])(?:\d+[dhm])*[\d.,]*\d[\d.,]*$")
_WORDS = re.compile(r"\s*\S+\s?")


def strip_controls(text: str) -> str:
    """Return `text` without escape sequences and control characters; tabs become spaces."""
    if text.isprintable():
        return text
    opened = _ANSI.sub("", text).expandtabs(4)
    return "".join(c for c in opened if c.isprintable())


def styled(text: str, style: Style = Style.PLAIN) -> Line:
    """Make a line of one span; empty text makes the empty line."""
    return (Span(text if text.isprintable() else strip_controls(text), style),) if text else EMPTY


def with_unit(figure: str, unit: str, style: Style = Style.PLAIN) -> Line:
    """Style a figure and its unit; a dash is dim and has no unit."""
    if figure == DASH:
        return styled(figure, Style.DIM)
    return styled(figure, style) + (styled(f" {unit}", Style.DIM) if unit else EMPTY)


def join(parts: Iterable[Line], between: Line) -> Line:
    out: list[Span] = []
    for part in parts:
        if part:
            out.extend(between if out else EMPTY)
            out.extend(part)
    return tuple(out)


def length(line: Line) -> int:
    cells = 0
    for text, _, _ in line:  # the most called function of a paint
        cells += len(text) if text.isascii() else cached_cell_len(text)
    return cells


def plain_text(line: Line) -> str:
    return "".join(span.text for span in line)


def clip(line: Line, width: int) -> Line:
    """Cut a line to `width` cells; a cut line ends in "…", and a figure that has no room goes as a whole."""
    if length(line) <= width:
        return line
    out: list[Span] = []
    room = max(width - 1, 0)
    for span in line:
        cells = cell_len(span.text)
        if cells > room:
            kept = _HALF_FIGURE.sub("", set_cell_size(span.text, room))
            return (*out, span._replace(text=kept + ELLIPSIS)) if width > 0 else EMPTY
        out.append(span)
        room -= cells
    return tuple(out)


def shorten(text: str, width: int) -> str:
    """Cut `text` in its middle to `width` cells, so that names that begin or end alike still differ."""
    text = strip_controls(text)
    if cell_len(text) <= width:
        return text
    return _cut(text, width, (width - 1) // 2) if width > 0 else ""


def _cut(name: str, width: int, tail: int) -> str:
    head = set_cell_size(name, width - 1 - tail).rstrip()
    end = len(name)
    while end and cell_len(name[end - 1 :]) <= tail:
        end -= 1
    return f"{head}{ELLIPSIS}{name[end:]}"


def pad(line: Line, width: int) -> Line:
    line, room = _fitted(line, width)
    return (*line, Span(" " * room, Style.PLAIN)) if room > 0 else line


def align_right(line: Line, width: int) -> Line:
    line, room = _fitted(line, width)
    return (Span(" " * room, Style.PLAIN), *line) if room > 0 else line


def _fitted(line: Line, width: int) -> tuple[Line, int]:
    room = width - length(line)
    if room >= 0:
        return line, room
    line = clip(line, width)
    return line, width - length(line)


def justify(left: Line, far: Line, width: int, fill: Span = BLANK) -> Line:
    """Place `left` and `far` at the two ends of exactly `width` cells; `far` is cut first."""
    left = clip(left, width)
    room = width - length(left)
    gap = room - length(far)
    if gap <= 0:
        far = clip(far, room - 1)
        gap = room - length(far)
    return left + styled(fill.text * gap, fill.style) + far


def dimmed(line: Line) -> Line:
    """Dim a line that is stale or unknown; quiet styles stay quieter than the figures."""
    quiet = (Style.FAINT, Style.TRACE, Style.FILL)
    return tuple(span._replace(style=Style.FAINT if span.style in quiet else Style.DIM) for span in line)


def merge_spans(cells: Iterable[Span]) -> Line:
    """Merge neighbouring spans of the same style: the terminal gets one escape sequence per span."""
    runs = groupby(cells, key=itemgetter(1, 2))
    return tuple(Span("".join(span.text for span in run), *look) for look, run in runs)


def highlighted(line: Line) -> Line:
    return tuple(span._replace(lit=True) for span in line)


def wrap(prose: str, width: int, style: Style = Style.PLAIN, limit: int | None = None) -> list[Line]:
    """Wrap `prose` at spaces, and inside words that are longer than a line (paths, URLs).

    With `limit`, return at most that many lines, the last one clipped.
    """
    rows: list[str] = []
    for word in (part for whole in strip_controls(prose).split() for part in chop_cells(whole, max(width, 2))):
        if rows and cell_len(rows[-1]) + 1 + cell_len(word) <= width:
            rows[-1] += f" {word}"
        else:
            rows.append(word)
    if limit is not None and len(rows) > limit:
        rows = [*rows[: limit - 1], " ".join(rows[limit - 1 :])]
    return [clip(styled(row, style), width) for row in rows]


def wrap_line(line: Line, width: int) -> list[Line]:
    if length(line) <= width:
        return [line]
    rows: list[list[Span]] = [[]]
    room = max(width, 2)
    for span in line:
        for word in (part for whole in _WORDS.findall(span.text) for part in chop_cells(whole, room)):
            if rows[-1] and length(tuple(rows[-1])) + cell_len(word.rstrip()) > room:
                rows[-1][-1] = rows[-1][-1]._replace(text=rows[-1][-1].text.rstrip())
                rows.append([])
            rows[-1].append(span._replace(text=word))
    return [merge_spans(row) for row in rows]


def key_hint(key: str, word: str) -> Line:
    return styled(key, Style.STRONG) + styled(f" {word}", Style.DIM)


def key_hints(*pairs: tuple[str, str]) -> Line:
    return join([key_hint(*pair) for pair in pairs], styled("  "))


class EdgeText(NamedTuple):
    """Text in the upper or lower edge of a frame."""

    left: Line = EMPTY
    far: Line = EMPTY


NO_EDGE_TEXT = EdgeText()
EDGE_ROOM = 9
"""Cells of an edge that corners, rules and the spaces around its two texts take."""


def frame(
    body: Sequence[Line],
    width: int,
    head: EdgeText = NO_EDGE_TEXT,
    foot: EdgeText = NO_EDGE_TEXT,
    *,
    height: int = 0,
    lit: bool = False,
) -> list[Line]:
    """Draw a rounded frame of `width` cells with text in its edges; body lines get `width - 4` cells.

    With a `height` other than 0, the body is cut or filled to it. `lit`: its panel has the keys.
    """
    style = Style.PLAIN if lit else Style.FAINT
    edge = styled("│", style)
    if height:
        body = [*body, *[EMPTY] * height][: max(height - 2, 0)]
    first, last = (*edge, BLANK), (BLANK, *edge)
    rows = [first + pad(line, width - 4) + last for line in body]
    return [_edge("╭", "╮", head, width, style), *rows, _edge("╰", "╯", foot, width, style)]


def divider(width: int, words: EdgeText) -> Line:
    return _edge("├", "┤", words, width)


def fitted_edge(left: Sequence[Line], far: Line, between: Line, width: int) -> EdgeText:
    """Make the text of an edge in a frame of `width` cells: the last parts of `left` give way to `far`."""
    parts = [part for part in left if part]
    while len(parts) > 1 and length(join(parts, between)) + length(far) > width - EDGE_ROOM:
        parts.pop()
    return EdgeText(clip(join(parts, between), width - EDGE_ROOM - length(far)), far)


def _edge(first: str, last: str, words: EdgeText, width: int, style: Style = Style.FAINT) -> Line:
    rule = _RULE._replace(style=style)
    left = styled(" ") + clip(words.left, width - 6) + styled(" ") if words.left else EMPTY
    room = width - 4 - length(left)
    far = styled(" ") + words.far + styled(" ") if words.far and length(words.far) + 3 <= room else EMPTY
    inner = justify(left or (rule,), (*far, rule), width - 2, rule)
    return styled(first, style) + inner + styled(last, style)


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
