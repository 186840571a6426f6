"""Faults of a drawn screen, found in its text alone: open frames, cut figures, names that cannot be told apart."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rich.cells import cell_len, get_character_cell_size

COMPACT_BELOW = 22
"""Rows below which the dashboard has no frames and no title bar of its own."""
CORNERS = "╭╮╰╯"
SIDES = "│├┤"
CUT = "…"
NOT_FIGURES = re.compile(r"(?<![\w.…/-])(?:None|nan|NaN|inf|-inf|Infinity|Traceback|<[a-z_.]+ object)(?![\w/-])")
UNIT_OF_NOTHING = re.compile(r"(?<=\s)- (tok/s|tokens|s|ms|GiB|GHz|W|°C|%)(?=\s)")
CUT_WORD = re.compile(rf"[^\s│|,:;()“”\"'`─]*{CUT}[^\s│|,:;()“”\"'`─]*")
FOREIGN = ("log ", "notices")
"""Beginnings of the titles of frames with text that was written elsewhere: it may be cut anywhere."""


class Box(NamedTuple):
    """A frame: first and last row, first and last column."""

    top: int
    bottom: int
    left: int
    right: int

    def overlaps(self, other: "Box") -> bool:
        return not (
            self.bottom < other.top or other.bottom < self.top or self.right < other.left or other.right < self.left
        )


@dataclass(frozen=True)
class Looked:
    """A drawn screen, and what is known of it beside its text."""

    lines: Sequence[str]
    columns: int
    rows: int
    names: frozenset[str] = frozenset()
    """Names that may stand on it cut in their middle: profiles, clients, engines."""
    engines: frozenset[str] = frozenset()
    """Engines that run: each must be seen, or counted."""
    over: Box | None = None
    """Dialog that covers a part of the page."""
    is_page: bool = True
    """Whether title bar and footer are to be seen."""
    shows: tuple[str, ...] = ()
    """Texts of which each must be seen."""


def faults(seen: Looked) -> list[str]:
    wrong = [
        f"line {y} is {cell_len(line)} cells wide"
        for y, line in enumerate(seen.lines)
        if cell_len(line) != seen.columns
    ]
    if len(seen.lines) != seen.rows:
        wrong.append(f"{len(seen.lines)} lines instead of {seen.rows}")
    if wrong:
        return wrong
    grid = [cells(line) for line in seen.lines]
    if seen.over is None:
        frames, wrong = frames_of(grid)
    else:
        grid = [row[seen.over.left : seen.over.right + 1] for row in grid[seen.over.top : seen.over.bottom + 1]]
        frames, wrong = frames_of(grid)
    wrong += collisions(frames)
    wrong += touching(grid, frames)
    wrong += leaks(grid)
    wrong += cuts(grid, frames, seen.names)
    wrong += missing(seen)
    if seen.is_page and seen.over is None:
        wrong += bars(seen)
    return wrong


def cells(line: str) -> list[str]:
    """Split a line into its cells; the second cell of a wide character is empty, a combining mark joins its letter."""
    out: list[str] = []
    for char in line:
        size = get_character_cell_size(char)
        if size == 0 and out:
            out[-1] += char
        else:
            out += [char] + [""] * (size - 1)
    return out


def frames_of(grid: Sequence[Sequence[str]]) -> tuple[list[Box], list[str]]:
    """Follow every frame around; return those that close, and every corner or side that belongs to none."""
    found, wrong = list[Box](), list[str]()
    for y, row in enumerate(grid):
        for x, glyph in enumerate(row):
            if glyph == "╭":
                box = _follow(grid, y, x)
                if isinstance(box, Box):
                    found.append(box)
                else:
                    wrong.append(f"a frame at column {x}, line {y}: {box}")
    for y, row in enumerate(grid):
        for x, glyph in enumerate(row):
            if glyph and glyph in CORNERS and not any(y in (b.top, b.bottom) and x in (b.left, b.right) for b in found):
                wrong.append(f"a corner {glyph} without its frame: column {x}, line {y}")
    return found, wrong


def _follow(grid: Sequence[Sequence[str]], top: int, left: int) -> Box | str:
    """Return the frame that begins at this corner, or where it breaks."""
    right = next((x for x in range(left + 1, len(grid[top])) if grid[top][x] in ("╮", "╭", *SIDES)), None)
    if right is None or grid[top][right] != "╮":
        return "its upper edge is open"
    for y in range(top + 1, len(grid)):
        ends = grid[y][left], grid[y][right]
        if ends == ("╰", "╯"):
            inner = "".join(grid[y][left + 1 : right])
            if any(glyph in inner for glyph in CORNERS + "├┤"):
                return f"its lower edge is broken: {inner}"
            return Box(top, y, left, right)
        if ends[0] not in SIDES or ends[1] not in SIDES:
            return f"its sides end at line {y} with {ends[0]!r} and {ends[1]!r}"
    return "it has no lower edge"


def collisions(frames: Sequence[Box]) -> list[str]:
    return [
        f"frames lie over each other: {one} and {other}"
        for number, one in enumerate(frames)
        for other in frames[number + 1 :]
        if one.overlaps(other)
    ]


def touching(grid: Sequence[Sequence[str]], frames: Iterable[Box]) -> list[str]:
    """Text that touches the side of its frame: there a figure is cut without a word."""
    wrong = []
    for box in frames:
        for y in range(box.top + 1, box.bottom):
            inner = grid[y][box.left + 1], grid[y][box.right - 1]
            if any(cell.isalnum() for cell in inner):
                wrong.append(f"text touches the frame in line {y}: {''.join(grid[y][box.left : box.right + 1])}")
        for y in (box.top, box.bottom):
            if any(cell.isalnum() for cell in (grid[y][box.left + 1], grid[y][box.right - 1])):
                wrong.append(f"text touches a corner in line {y}: {''.join(grid[y][box.left : box.right + 1])}")
    return wrong


def leaks(grid: Sequence[Sequence[str]]) -> list[str]:
    """Python's words for what is unknown, and characters that move a terminal's cursor."""
    wrong = []
    for y, row in enumerate(grid):
        text = "".join(row)
        if found := NOT_FIGURES.search(text):
            wrong.append(f"{found[0]!r} in line {y}: {text.strip()}")
        if found := UNIT_OF_NOTHING.search(text):
            wrong.append(f"{found[0]!r} in line {y}: {text.strip()}")
        if not text.isprintable():
            wrong.append(f"a control character in line {y}: {text!r}")
    return wrong


def cuts(grid: Sequence[Sequence[str]], frames: Iterable[Box], names: frozenset[str]) -> list[str]:
    """Figures cut by an ellipsis, and cut names that fit several names."""
    foreign = [box for box in frames if _heading(grid, box).startswith(FOREIGN)]
    wrong = []
    for y, row in enumerate(grid):
        own = [cell if not any(box.top < y < box.bottom and box.left < x < box.right for box in foreign) else " "
               for x, cell in enumerate(row)]  # fmt: skip
        text = "".join(own)
        if re.search(rf"[┏┗┃┣╺━┛╹╸┓█]{CUT}", text):
            wrong.append(f"a large figure is cut in line {y}: {text.strip()}")
        for word in CUT_WORD.findall(text):
            meant = [name for name in names if _is_cut_of(word, name)]
            if len(meant) > 1:
                wrong.append(f"{word} may be each of {', '.join(sorted(meant))}: line {y}")
            elif not meant and re.search(rf"(?<![A-Za-z])[\d.]+{CUT}|{CUT}[\d.]*\d", word):
                wrong.append(f"a figure is cut in line {y}: {text.strip()}")
    return wrong


def _heading(grid: Sequence[Sequence[str]], box: Box) -> str:
    return "".join(grid[box.top][box.left + 1 : box.right]).strip("─ ")


def _is_cut_of(word: str, name: str) -> bool:
    pattern = ".*".join(re.escape(part) for part in word.split(CUT))
    return word != CUT and name != word and re.fullmatch(pattern, name) is not None


def missing(seen: Looked) -> list[str]:
    """Engines and promised texts that are nowhere."""
    text = "\n".join(seen.lines)
    flat = " ".join(text.replace("│", " ").split())
    wrong = [f"{name} is nowhere" for name in seen.engines if not _is_seen(name, text)]
    return wrong + [f"{told!r} is nowhere" for told in seen.shows if told not in flat]


def _is_seen(name: str, text: str) -> bool:
    """Whether a name stands there, whole, cut in its middle, or counted."""
    return name in text or " more" in text or any(_is_cut_of(word, name) for word in CUT_WORD.findall(text))


def bars(seen: Looked) -> list[str]:
    wrong = []
    title, footer = seen.lines[0].strip(), seen.lines[-1].strip()
    if not re.search(r"\d\d:\d\d$", title):
        wrong.append(f"the title ends without the time: {title}")
    notice = seen.rows < COMPACT_BELOW and not footer.startswith("1")
    if not notice:
        if not re.match(r"1( Dash 2 Profiles 3 Requests 4 A/B 5 Logs 6 History 7 Box|-7 pages)\b", footer):
            wrong.append(f"the footer does not begin with the pages: {footer}")
        if not footer.endswith("? help"):
            wrong.append(f"the footer does not end with the help: {footer}")
        if CUT in footer:
            wrong.append(f"the footer is cut: {footer}")
    return wrong
