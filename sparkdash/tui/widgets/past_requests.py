"""Table of ended requests out of the recorded past.

Owns: the columns. Must not know: how they are read and filtered.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from sparkdash.domain.lease import Request, RequestState
from sparkdash.domain.phrases import about, output_of_request
from sparkdash.tui.ink import Ink, Line, align_right, clip, inked, length, pad
from sparkdash.tui.lines.request_filter import request_figures
from sparkdash.tui.mirror import View
from sparkdash.tui.name_cuts import profile_names, shorten_apart
from sparkdash.tui.widgets.table import Table, TableRow
from sparkdash.units import DASH, duration, number, percent

TIME, CLIENT, PROFILE, FINISH = 13, 14, 18, 20
SHORT_CLIENT, SHORT_FINISH, ROOMY = 11, 13, 90
"""Cells of a client's name and of the end in terminals of fewer columns than ROOMY."""


class PastColumn(NamedTuple):
    """Column between the profile and the end; the highest `gives_way` leaves a narrow terminal first."""

    name: str
    cells: int
    gives_way: int
    text: Callable[[Request], str]


def _output_text(one: Request) -> str:
    output, estimated = output_of_request(one)
    return about(number(output), estimated=estimated)


COLUMNS = (
    PastColumn("prompt", 8, 2, lambda one: number(one.prompt_tokens)),
    PastColumn("cached", 8, 4, lambda one: percent(_cached(one))),
    PastColumn("think", 7, 6, lambda one: number(one.reasoning_tokens)),
    PastColumn("out", 7, 1, _output_text),
    PastColumn("wait", 8, 2, lambda one: duration(request_figures(one)["wait"])),
    PastColumn("ttft", 7, 1, lambda one: number(one.ttft_s, 2)),
    PastColumn("tok/s", 7, 3, lambda one: number(one.decode_tok_s, 1)),
    PastColumn("took", 8, 0, lambda one: duration(request_figures(one)["took"])),
    PastColumn("Wh", 7, 5, lambda one: number(one.energy_wh, 2)),
)


def _cached(one: Request) -> float | None:
    return None if one.cached_tokens is None or not one.prompt_tokens else one.cached_tokens / one.prompt_tokens


def _columns(width: int) -> list[PastColumn]:
    found, finish = list(COLUMNS), FINISH if width >= ROOMY else SHORT_FINISH
    while sum(one.cells for one in found) + 1 + TIME + _client(width) + PROFILE + finish > width and len(found) > 1:
        found.remove(max(found, key=lambda one: one.gives_way))
    return found


class PastTable(Table):
    """Table of past requests. The page sets `found` and `told`."""

    title = "past requests"
    nothing = "reading the past…"
    found: tuple[Request, ...] = ()
    goes_on = False
    """Whether more rows can be read after the last one."""

    def head(self, width: int) -> Line:
        """Return the column titles."""
        columns = _columns(width)
        figures = "".join(f"{one.name:>{one.cells}}" for one in columns)
        return inked(f" {'time':<{TIME}}{'client':<{_client(width)}}{'profile':<{PROFILE}}{figures}  finish", Ink.DIM)

    def rows(self, view: View, width: int) -> list[TableRow]:
        """Return a row for each request."""
        columns = _columns(width)
        names = profile_names(view)
        return [
            TableRow(one.id, partial(_past_line, one, columns, view.now, width, names), one.id) for one in self.found
        ]

    def set_filter(self, text: str) -> None:
        """Leave the rows as they are: the page asks for those that fit."""

    def is_last(self, key: str | None) -> bool:
        """Whether this is the key of the last row."""
        return bool(self.found) and self.found[-1].id == key

    def count_text(self, count: int) -> str:
        """Format the number of rows, with a "+" where there are more."""
        return f"{count}+" if self.goes_on else f"{count}"

    def request(self, key: str | None) -> Request | None:
        """Return the request of a row."""
        return next((one for one in self.found if one.id == key), None)


def _past_line(one: Request, columns: list[PastColumn], now: float, width: int, names: frozenset[str]) -> Line:
    form = "%H:%M:%S" if now - one.started_at < 86400 else "%d %b %H:%M"
    line = inked(f" {time.strftime(form, time.localtime(one.started_at)):<{TIME}}", Ink.DIM)
    line += pad(inked(one.client), _client(width) - 1) + inked(" ") + _profile(one.profile, names) + inked(" ")
    for column in columns:
        told = column.text(one)
        line += align_right(inked(told, Ink.DIM if told == DASH else Ink.PLAIN), column.cells)
    bad = one.state is RequestState.FAILED
    end = f"{one.status} {one.error or ''}" if bad else one.finish_reason or one.state.value
    end = _fitting(end, width - length(line) - 2)
    return clip(line + inked("  ") + inked(end, Ink.BAD if bad else Ink.DIM), width)


def _client(width: int) -> int:
    return CLIENT if width >= ROOMY else SHORT_CLIENT


def _fitting(end: str, room: int) -> str:
    """Return how a request ended, or the status alone where the reason has no room."""
    return end if len(end) <= room else end.partition(" ")[0]


def _profile(name: str, names: frozenset[str]) -> Line:
    return pad(inked(shorten_apart(name, PROFILE - 1, names)), PROFILE - 1)
