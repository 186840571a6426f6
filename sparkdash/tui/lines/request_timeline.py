"""Time line of one ended request: wait, swap, prefill, decode, to scale.

Owns: the parts and their texts. Rule: a part that was not measured is left out, never guessed.
Must not know: where requests and marks come from.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from sparkdash.domain.history import MarkKind, TimelineMark
from sparkdash.domain.lease import Request
from sparkdash.domain.phrases import about, output_of_request
from sparkdash.tui.ink import EMPTY, Ink, Line, inked, merge_spans, pad, wrap
from sparkdash.units import duration, number

_LABEL = 10


class TimePart(NamedTuple):
    """Part of a request's time, `seconds` long."""

    name: str
    seconds: float
    glyph: str
    ink: Ink


def parts_of(one: Request, marks: Sequence[TimelineMark]) -> list[TimePart]:
    """Split the time of a request; `marks` are the swaps around it."""
    end = one.finished_at
    if end is None:
        return []
    granted = one.granted_at if one.granted_at is not None else end
    swapped = min(_swap_seconds(one, granted, marks), granted - one.started_at)
    parts = [
        TimePart("waits", granted - one.started_at - swapped, "░", Ink.DIM),
        TimePart("swap", swapped, "▚", Ink.WARN),
    ]
    rest = end - granted
    if one.granted_at is not None and one.ttft_s is not None:
        prefill = min(one.ttft_s, rest)
        parts += [TimePart("prefill", prefill, "▒", Ink.PLAIN), TimePart("decode", rest - prefill, "█", Ink.GOOD)]
    elif one.granted_at is not None:
        parts.append(TimePart("engine", rest, "█", Ink.GOOD))
    return [part for part in parts if part.seconds > 0.0005]


def _swap_seconds(one: Request, granted: float, marks: Sequence[TimelineMark]) -> float:
    found = 0.0
    for mark in marks:
        if mark.kind is MarkKind.SWAP and mark.profile == one.profile and mark.until is not None:
            found += max(min(mark.until, granted) - max(mark.at, one.started_at), 0.0)
    return found


def timeline_lines(one: Request, marks: Sequence[TimelineMark], width: int) -> list[Line]:
    """Format a request: its bar, the moments below it, and what each part did."""
    parts = parts_of(one, marks)
    lines = [_bar(parts, width), _moments(one, parts, width), EMPTY] if parts else []
    lines += [_fact(part.name, f"{_seconds(part.seconds)}  {_told(part, one)}", part.ink) for part in parts]
    lines += _facts(one, width)
    swaps = [mark for mark in marks if mark.kind is MarkKind.SWAP and mark.profile == one.profile]
    for mark in swaps[:2]:
        lines += [_fact("meanwhile", "") + row for row in wrap(mark.text, width - _LABEL, Ink.DIM, limit=2)]
    return lines


def _facts(one: Request, width: int) -> list[Line]:
    lines = [_fact("profile", one.profile)]
    lines.append(_fact("client", f"{one.client}{f', key {one.key}' if one.key else ''} · {one.route}"))
    if one.energy_wh is not None:
        lines.append(_fact("energy", f"{one.energy_wh:.2f} Wh"))
    ended = f"status {number(one.status)}, {one.finish_reason or one.state.value}"
    lines.append(_fact("ended", f"{ended}, after {_seconds((one.finished_at or one.started_at) - one.started_at)}"))
    if one.error:
        lines += [inked(" " * _LABEL) + row for row in wrap(one.error, width - _LABEL, Ink.BAD)]
    return lines


def _told(part: TimePart, one: Request) -> str:
    if part.name == "prefill":
        cached = one.cached_tokens or 0
        computed = one.prompt_tokens - cached if one.prompt_tokens is not None else None
        return f"{number(computed)} computed of {number(one.prompt_tokens)} ({number(one.cached_tokens)} cached)"
    if part.name == "decode":
        think = f", {one.reasoning_tokens} of them reasoning" if one.reasoning_tokens else ""
        output, estimated = output_of_request(one)
        return f"{about(number(output), estimated=estimated)} tokens{think}, {number(one.decode_tok_s, 1)} tok/s"
    return {"waits": "for its place in the queue", "swap": f"for the load of {one.profile}"}.get(part.name, "")


def _bar(parts: Sequence[TimePart], width: int) -> Line:
    whole = sum(part.seconds for part in parts)
    cells = [max(1, round(part.seconds / whole * width)) for part in parts]
    cells[cells.index(max(cells))] += width - sum(cells)
    return merge_spans(
        span for part, count in zip(parts, cells, strict=True) for span in inked(part.glyph * max(count, 1), part.ink)
    )


def _moments(one: Request, parts: Sequence[TimePart], width: int) -> Line:
    """Write the times of begin and end below the bar."""
    form = "%H:%M:%S" if parts else ""
    begin = time.strftime(f"%d %b {form}", time.localtime(one.started_at))
    end = time.strftime(form, time.localtime(one.finished_at or one.started_at))
    return pad(inked(begin, Ink.DIM), max(width - len(end), 0)) + inked(end, Ink.DIM)


def _fact(label: str, text: str, ink: Ink = Ink.PLAIN) -> Line:
    return inked(f"{label:<{_LABEL}}", Ink.DIM) + inked(text, Ink.PLAIN if ink is Ink.DIM else ink)


def _seconds(value: float) -> str:
    return f"{value:.2f}s" if value < 10 else duration(value)
