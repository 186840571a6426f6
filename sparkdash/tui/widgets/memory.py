"""Panel of the unified memory as one bar: engines, foreign containers, other processes, page cache, free memory,
reserve.

Owns: how the kernel's figures add up to the bar. Rule: an engine's unknown share is not guessed; it is part of
"engines + other".
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from sparkdash.domain.container import Stranger
from sparkdash.domain.memory.guard import Guard, GuardLevel
from sparkdash.domain.metric import Memory
from sparkdash.natural import natural
from sparkdash.tui.ink import EMPTY, EdgeText, Ink, Line, Span, clip, dimmed, frame, inked, join, length, merge_spans
from sparkdash.tui.lines.node_lines import BarRows, memory_of_boxes
from sparkdash.tui.lines.words import age
from sparkdash.tui.mirror import View
from sparkdash.tui.widgets.panel import Panel
from sparkdash.units import DASH, GIB, gib

ENGINE_GLYPHS = "█▚▞"
OTHER, CACHE, FREE, MARK, KEPT = "▓", "▒", "░", "┊", "·"


class Part(NamedTuple):
    """Stretch of the bar. `bytes` None is unknown: a legend without a stretch."""

    name: str
    glyph: str
    bytes: int | None
    ink: Ink


def memory_parts(memory: Memory) -> list[Part]:
    """Return the stretches from left to right; the known ones add up to the total."""
    engines = [
        Part(name, ENGINE_GLYPHS[i % len(ENGINE_GLYPHS)], held, Ink.GOOD)
        for i, (name, held) in enumerate(sorted(memory.engines.items(), key=lambda item: natural(item[0])))
    ]
    engines += [Part(_theirs(each), OTHER, each.bytes, Ink.WARN) for each in memory.strangers]
    cache = memory.page_cache or 0
    known = sum(part.bytes or 0 for part in engines)
    rest = max(memory.total - memory.free - cache - known, 0)
    guess = any(held is None for held in memory.engines.values())
    return [
        *engines,
        Part("engines + other" if guess else "other", OTHER, rest, Ink.PLAIN),
        Part("cache", CACHE, memory.page_cache, Ink.DIM),
        Part("free", FREE, memory.free, Ink.DIM),
    ]


def memory_bar(memory: Memory, width: int) -> Line:
    """Draw the bar in exactly `width` cells. Memory used beyond the reserve's mark is red."""
    cells: list[Span] = []
    filled = 0
    for part in memory_parts(memory):
        filled += part.bytes or 0
        end = min(round(filled / memory.total * width), width)
        cells.extend([Span(part.glyph, part.ink)] * (end - len(cells)))
    cells.extend([Span(FREE, Ink.DIM)] * (width - len(cells)))
    return merge_spans(_marked(cells, memory, width) if memory.reserve else cells)


def _marked(cells: list[Span], memory: Memory, width: int) -> list[Span]:
    mark = min(max(round((memory.total - memory.reserve) / memory.total * width), 0), width - 1)
    kept = memory.available >= memory.reserve
    beyond = [_beyond(span) for span in cells[mark + 1 :]]
    return [*cells[:mark], Span(MARK, Ink.PLAIN if kept else Ink.BAD), *beyond]


def _beyond(span: Span) -> Span:
    if span.text == FREE:
        return Span(KEPT, Ink.DIM)
    return span if span.text == CACHE else span._replace(ink=Ink.BAD)


_ROOMS = (("   ", 40), *(("  ", longest) for longest in (40, 28, 24, 20, 16, 14, 12, 10, 8, 6)), (" ", 6), (" ", 4))
"""Separator of the legend and longest name, from the widest layout to the tightest."""


def memory_legend(memory: Memory, width: int) -> Line:
    """Format glyph, name and GiB of every stretch; empty ones keep their place, long engine names are cut."""
    for between, longest in _ROOMS:
        line = join(_marks(memory, longest), inked(between))
        if length(line) <= width:
            return line
    return clip(line, width)


def _marks(memory: Memory, longest: int) -> list[Line]:
    stretches = [*memory_parts(memory), Part("reserve", MARK, memory.reserve or None, Ink.PLAIN)]
    long = {*memory.engines, *map(_theirs, memory.strangers)}
    heads = Counter(name[: longest - 1] for name in long if "/" not in name)
    return [
        _mark(
            part,
            _short(part.name, longest, alike=heads[part.name[: longest - 1]] > 1) if part.name in long else part.name,
        )
        for part in stretches
    ]


def _theirs(stranger: Stranger) -> str:
    return f"theirs: {stranger.name}"


def _short(name: str, longest: int, *, alike: bool) -> str:
    """Shorten a long name at its end, in its middle if another begins alike, or at its beginning for a variant."""
    if len(name) <= longest:
        return name
    if alike and "/" not in name:
        tail = (longest - 1) // 2
        return f"{name[: longest - 1 - tail]}…{name[-tail:]}"
    return f"…{name[1 - longest :]}" if "/" in name else f"{name[: longest - 1]}…"


def _mark(part: Part, name: str) -> Line:
    held = part.bytes
    figure = inked(f" {held / GIB:.1f}", Ink.STRONG) if held is not None else inked(f" {DASH}", Ink.DIM)
    return inked(part.glyph, part.ink) + inked(" ") + inked(name, Ink.DIM) + figure


def guard_line(guard: Guard | None) -> Line:
    """Describe what the memory guard does now; empty while all is well."""
    if guard is None or guard.level is GuardLevel.OK:
        return inked("guard off", Ink.DIM) if guard and guard.mode == "off" else EMPTY
    does = _DOES[guard.level] if guard.mode == "act" else "warns"
    return inked(f"⚠ guard {does}", Ink.WARN if guard.level is GuardLevel.WARN else Ink.BAD)


_DOES = {GuardLevel.WARN: "warns", GuardLevel.HOLD: "holds loads back", GuardLevel.KILL: "kills"}


SHORT_ROWS = 30
"""Height of the terminal below which the GPUs' figures stand in the edges, and not in rows of their own."""


class MemoryBar(Panel):
    """Framed bar and its legend, 4 rows; with other nodes a bar for each box, and the link between them."""

    def draw(self, view: View, width: int, height: int) -> list[Line]:  # noqa: ARG002 - as tall as it must be
        """Return the framed bars."""
        memory = view.sample.memory if view.sample else None
        guard = view.snapshot.guard if view.snapshot else None
        stale = view.sample_age_s if memory else None
        old = inked(f"{age(stale)} old", Ink.WARN) if stale is not None else EMPTY
        if view.nodes:
            short = self.app.size.height < SHORT_ROWS
            rows = BarRows(memory_bar, memory_legend)
            return memory_of_boxes(view, width, first=[guard_line(guard), old], rows=rows, gpus=short)
        if memory is None:
            body = [inked("─" * (width - 4), Ink.FAINT), inked("memory of the box: -", Ink.DIM)]
            return frame(body, width, EdgeText(inked("unified memory")))
        left = inked(f"available {gib(memory.available)}", Ink.PLAIN if memory.available > memory.reserve else Ink.BAD)
        head = EdgeText(
            join([inked("unified memory"), guard_line(guard), old], inked(" ── ", Ink.FAINT)),
            join([left, inked(gib(memory.total), Ink.STRONG)], inked(" of ", Ink.DIM)),
        )
        body = [memory_bar(memory, width - 4), memory_legend(memory, width - 4)]
        return frame(body if stale is None else [dimmed(line) for line in body], width, head)
