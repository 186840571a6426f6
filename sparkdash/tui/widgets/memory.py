"""Panel of the unified memory as one bar: engines, foreign containers, other processes, page cache, free, reserve.

Rule: an engine's unknown share is not guessed; it is part of "engines + other".
"""

from collections.abc import Iterable
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple

from sparkdash.domain.memory import Guard, GuardLevel
from sparkdash.domain.metric import Memory
from sparkdash.tui.layout import is_compact
from sparkdash.tui.lines.node_lines import BarRows, available, link_line, memory_of_boxes, status_line
from sparkdash.tui.lines.words import age
from sparkdash.tui.mirror import View
from sparkdash.tui.text import (
    EDGE_ROOM,
    EMPTY,
    EdgeText,
    Line,
    Span,
    Style,
    clip,
    dimmed,
    fitted_edge,
    frame,
    join,
    key_hint,
    length,
    merge_spans,
    shorten,
    shorten_apart,
    styled,
)
from sparkdash.tui.widgets.panel import Panel
from sparkdash.units import DASH, GIB, gib, natural

ENGINE_GLYPHS = "█▚▞▜▙▛▟"
LETTERS = "abcdefghijklmnopqrstuvwxyz"
"""Fills of the engines after those with a glyph of their own."""
ROWS_OF_BOX = 3
"""Rows of a box in the frame of several: edge, bar, legend."""
OTHER, CACHE, FREE, MARK, KEPT, THEIRS = "▓", "▒", "░", "┊", "·", "╳"


class Part(NamedTuple):
    """Stretch of the bar. `bytes` None is unknown: a legend without a stretch."""

    name: str
    glyph: str
    bytes: int | None
    style: Style


def memory_parts(memory: Memory) -> list[Part]:
    """Return the stretches from left to right; the known ones add up to the total."""
    engines = [
        Part(name, (ENGINE_GLYPHS + LETTERS)[min(i, len(ENGINE_GLYPHS + LETTERS) - 1)], held, Style.FILL)
        for i, (name, held) in enumerate(sorted(memory.engines.items(), key=_by_size))
    ]
    engines += [Part(f"theirs: {each.name}", THEIRS, each.bytes, Style.WARN) for each in memory.strangers]
    cache = memory.page_cache or 0
    known = sum(part.bytes or 0 for part in engines)
    rest = max(memory.total - memory.free - cache - known, 0)
    guess = any(held is None for held in memory.engines.values())
    return [
        *engines,
        Part("engines + other" if guess else "other", OTHER, rest, Style.FILL),
        Part("cache", CACHE, memory.page_cache, Style.FILL),
        Part("free", FREE, memory.free, Style.FILL),
    ]


def _by_size(item: tuple[str, int | None]) -> tuple[int, list[Any]]:
    """Sort the largest engine first, in steps: one that comes or grows a little leaves the others their fills."""
    name, held = item
    return (-((held or 0) // SIZE_STEP), list(natural(name)))


def memory_bar(memory: Memory, width: int) -> Line:
    """Draw the bar in exactly `width` cells. Memory used beyond the reserve's mark is red."""
    cells: list[Span] = []
    filled = 0
    for part in memory_parts(memory):
        filled += part.bytes or 0
        end = min(round(filled / memory.total * width), width)
        cells.extend([Span(part.glyph, part.style)] * (end - len(cells)))
    cells.extend([Span(FREE, Style.FILL)] * (width - len(cells)))
    return merge_spans(_marked(cells, memory, width) if memory.reserve else cells)


def _marked(cells: list[Span], memory: Memory, width: int) -> list[Span]:
    mark = min(max(round((memory.total - memory.reserve) / memory.total * width), 0), width - 1)
    kept = memory.available >= memory.reserve
    beyond = [_beyond(span) for span in cells[mark + 1 :]]
    return [*cells[:mark], Span(MARK, Style.PLAIN if kept else Style.BAD), *beyond]


def _beyond(span: Span) -> Span:
    if span.text == FREE:
        return Span(KEPT, Style.FILL)
    return span if span.text == CACHE else span._replace(style=Style.BAD)


_ROOMS = (
    ("   ", 40),
    *(("  ", longest) for longest in (40, 28, 24, 20, 16, 14, 12, 10)),
    *((" ", longest) for longest in (10, 8, 6, 5)),
)
"""Separator of the legend and longest name, from the widest layout to the tightest."""
KEPT_COLUMNS = 2000
SIZE_STEP, TENTH = 4 * GIB, GIB / 10
LEAST_NAME, TIGHT = 12, 5
GAP = styled("  ")
FIXED = ("free", "cache", "other", "engines + other", "reserve")


def memory_legend(memory: Memory, width: int) -> Line:
    """Format glyph, name and GiB of every stretch; long names are cut, and the least engines become "+2 engines"."""
    return _one_row_legend(_stretches(memory), width)


@lru_cache(maxsize=16)
def _one_row_legend(stretches: tuple[Part, ...], width: int) -> Line:
    most = sum(part.name not in FIXED for part in stretches)
    tries = ((_marks(stretches, longest, most), between) for between, longest in _ROOMS)
    fewer = ((_marks(stretches, LEAST_NAME, kept), " ") for kept in range(most - 1, -1, -1))
    return _fitting(chain(tries, fewer), width) or clip(join(_marks(stretches, TIGHT, 0), styled(" ")), width)


def legend_rows(memory: Memory, width: int) -> list[Line]:
    """Format the legend in one row, or in two where one would cost the engines their names."""
    return _legend_rows(_stretches(memory), width)


@lru_cache(maxsize=16)
def _legend_rows(stretches: tuple[Part, ...], width: int) -> list[Line]:
    most, fixed = sum(part.name not in FIXED for part in stretches), 4
    parts = _marks(stretches, LEAST_NAME, most)
    tries = ((longest, most) for longest in (40, 28, 20, 16, LEAST_NAME))
    fewer = ((LEAST_NAME, kept) for kept in range(most - 1, -1, -1))
    rows = ((_marks(stretches, *one)[:-fixed], "  ") for one in chain(tries, fewer))
    if length(join(parts, styled(" "))) > width and (first := _fitting(rows, width)):
        return [first, clip(join(parts[-fixed:], GAP), width)]
    return [_one_row_legend(stretches, width)]


def _fitting(tries: Iterable[tuple[list[Line], str]], width: int) -> Line:
    """Return the first row of parts, joined by its separator, that has room; empty when none has."""
    rows = (join(parts, styled(between)) for parts, between in tries)
    return next((row for row in rows if length(row) <= width), EMPTY)


def _stretches(memory: Memory) -> tuple[Part, ...]:
    """Return the stretches as the legend tells them, by tenths of a GiB: those of an idle box are the same for long."""
    parts = (*memory_parts(memory), Part("reserve", MARK, memory.reserve or None, Style.PLAIN))
    return tuple(
        part if part.bytes is None else part._replace(bytes=int(round(part.bytes / TENTH) * TENTH)) for part in parts
    )


def _marks(stretches: tuple[Part, ...], longest: int, most: int) -> list[Line]:
    """Format every stretch, of engines and of other owners' containers the `most` largest."""
    owners = [part for part in stretches if part.name not in FIXED]
    kept = sorted(owners, key=lambda part: -(part.bytes or 0))[:most]
    own = frozenset(part.name for part in owners)
    marks = [_mark(part, shorten_apart(part.name, longest, own)) for part in owners if part in kept]
    if rest := [part.bytes or 0 for part in owners if part not in kept]:
        marks.append(_mark(Part("", "+", sum(rest), Style.PLAIN), f"{len(rest)} engines"))
    short = {"reserve": "kept"} if longest == TIGHT else {}
    return [*marks, *(_mark(part, short.get(part.name, part.name)) for part in stretches if part.name in FIXED)]


def _mark(part: Part, name: str) -> Line:
    held = part.bytes
    figure = styled(f" {held / GIB:.1f}", Style.PLAIN) if held is not None else styled(f" {DASH}", Style.DIM)
    return styled(part.glyph, part.style) + styled(" ") + styled(name, Style.DIM) + figure


def guard_line(guard: Guard | None) -> Line:
    if guard is None or guard.level is GuardLevel.OK:
        return styled("guard off", Style.DIM) if guard and guard.mode == "off" else EMPTY
    does = _DOES[guard.level] if guard.mode == "act" else "warns"
    return styled(f"⚠ guard {does}", Style.WARN if guard.level is GuardLevel.WARN else Style.BAD)


def guard_next(guard: Guard | None) -> Line:
    if guard is None or guard.mode != "act" or guard.level is not GuardLevel.HOLD or guard.floors is None:
        return EMPTY
    return styled(f"below {gib(guard.floors.kill)} it ends an engine", Style.BAD)


_DOES = {GuardLevel.WARN: "warns", GuardLevel.HOLD: "holds loads back", GuardLevel.KILL: "kills"}


SHORT_ROWS = 30
"""Height of the terminal below which the GPUs' figures stand in the edges, and not in rows of their own."""


class MemoryBar(Panel):
    """Framed bar and its legend, with a chart behind them where there is room; with other nodes a bar for each box."""

    chart_rows = 0

    def __init__(self) -> None:
        super().__init__()
        self._columns: dict[int, tuple[Memory, int, str]] = {}
        """Columns of the chart by the identity of their memory: most stay the same from paint to paint."""

    def has_chart(self, view: View) -> bool:
        return not view.nodes and view.sample is not None and view.sample.memory is not None

    def rows_without_chart(self, view: View, width: int) -> int:
        memory = view.sample.memory if view.sample else None
        if memory is None or view.nodes or is_compact(self.app.size.height):
            return len(self.draw(view, width, 0))
        return 3 + len(legend_rows(memory, width - 4))

    def _column(self, memory: Memory, rows: int) -> str:
        found = self._columns.get(id(memory))
        if found is None or found[0] is not memory or found[1] != rows:
            if len(self._columns) > KEPT_COLUMNS:
                self._columns.clear()
            found = self._columns[id(memory)] = (memory, rows, memory_column(memory, rows))
        return found[2]

    def draw(self, view: View, width: int, height: int) -> list[Line]:  # noqa: ARG002 - as tall as it must be
        memory = view.sample.memory if view.sample else None
        guard = view.snapshot.guard if view.snapshot else None
        stale = view.sample_age_s if memory else None
        old = styled(f"{age(stale)} old", Style.WARN) if stale is not None else EMPTY
        if is_compact(self.app.size.height):
            return self._one_row_a_box(view, width)
        if view.nodes:
            if ROWS_OF_BOX * (1 + len(view.nodes)) > self.app.size.height // 2:
                head = EdgeText(join([styled("memory"), guard_line(guard), old], styled(" ── ", Style.FAINT)))
                foot = EdgeText(clip(link_line(view), width - 8))
                return frame([clip(row, width - 4) for row in self._one_row_a_box(view, width - 4)], width, head, foot)
            short = self.app.size.height < SHORT_ROWS
            rows = BarRows(memory_bar, memory_legend)
            return memory_of_boxes(view, width, first=[guard_line(guard), old], rows=rows, gpus=short)
        if memory is None:
            body = [styled("─" * (width - 4), Style.FAINT), styled("memory of the box: -", Style.DIM)]
            return frame(body, width, EdgeText(styled("unified memory")))
        body = [memory_bar(memory, width - 4), *legend_rows(memory, width - 4)]
        body = body if stale is None else [dimmed(line) for line in body]
        if shown := self.chart_rows:
            past = view.history.memory(width - 4, view.known_at)
            columns = [self._column(one, shown) if one else " " * shown for one in past]
            body += [styled("".join(cells), Style.FAINT) for cells in reversed([*zip(*columns, strict=True)])]
        head = _head(memory, [guard_line(guard), old, guard_next(guard)], width)
        return frame(body, width, head, EdgeText(EMPTY, key_hint("7", "by holder")))

    def _one_row_a_box(self, view: View, width: int) -> list[Line]:
        sample = view.sample
        guard = view.snapshot.guard if view.snapshot else None
        here = "mem" if is_compact(self.app.size.height) or not view.snapshot else view.snapshot.daemon.host
        rows = [_one_row(here, sample.memory if sample else None, guard, width, old=view.sample_age_s is not None)]
        for name, state in sorted(view.nodes.items()):
            found = sample.nodes.get(name) if sample else None
            old = view.node_age_s(name) is not None
            memory, status = found.memory if found else None, status_line(state, view)
            rows.append(_one_row(name, memory, None, width, old=old, status=status))
        return rows


def _head(memory: Memory, first: list[Line], width: int) -> EdgeText:
    """Lay out the edge: what the guard does, what is available, and what comes next, before the panel's own name."""
    far = available(memory)
    whole, less = [part for part in first if part], [part for part in first[:-1] if part]
    names = ("unified memory", "memory")
    for name, parts in (*((name, whole) for name in (*names, "")), *((name, less) for name in names)):
        left = join([styled(name), *parts], styled(" ── ", Style.FAINT))
        if length(left) + length(far) <= width - EDGE_ROOM:
            return EdgeText(left, far)
    return fitted_edge(less, far[:1], styled(" "), width)


def _one_row(
    name: str, memory: Memory | None, guard: Guard | None, width: int, *, old: bool, status: Line = EMPTY
) -> Line:
    head = styled(f" {shorten(name, 8):<9}", Style.DIM)
    if memory is None:
        return head + (status or styled("-", Style.DIM))
    left = styled(f"{gib(memory.available)}", Style.PLAIN if memory.available > memory.reserve else Style.BAD)
    warned = status or guard_line(guard)
    left += styled(f" of {gib(memory.total)}{'' if warned else ' available'}", Style.DIM)
    told = join([warned, left], styled("  "))
    cells = width - length(told) - 13
    bar = memory_bar(memory, cells) + styled("  ") if cells >= 8 else EMPTY
    line = head + bar + told
    return clip(dimmed(line) if old else line, width)


def memory_column(memory: Memory, rows: int) -> str:
    """Return the fill of each row from the foot, by the owner of the memory at the row's middle."""
    out = ""
    parts = memory_parts(memory)
    for row in range(rows):
        at, filled, glyph = (row + 0.5) / rows * memory.total, 0, " "
        for part in parts:
            filled += part.bytes or 0
            if at < filled:
                glyph = " " if part.glyph == FREE else part.glyph
                break
        out += glyph
    return out
