"""Chart of one recorded figure over a window of time, with a cursor, marks, and another series over it.

Rule: a widget gets one bucket per dot column; the daemon makes the buckets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual import events
from textual.message import Message

from sparkdash.domain.event import Level
from sparkdash.tui.lines.chart_window import MINUTE_S, ChartWindow, moment_text, span_text, ticks
from sparkdash.tui.lines.charts import AXIS, ChartMark, columns, mark_row, nice_top, range_chart, tick_row
from sparkdash.tui.mirror import View
from sparkdash.tui.text import EMPTY, EdgeText, Line, Style, clip, frame, join, length, styled
from sparkdash.tui.widgets.panel import AS_TALL_AS_NEEDED, Panel
from sparkdash.units import DASH, size

if TYPE_CHECKING:
    from sparkdash.domain.history import Series, TimelineMark

TICK_CELLS = 16
LEAST_ROWS = 3
NEAR = 0.01
"""Share of the width within which a mark is told beside the cursor."""


@dataclass(frozen=True, slots=True)
class ChartSubject:
    """Figure of a profile's engine, or of the box."""

    figure: str
    profile: str


@dataclass
class ChartZoomed(Message):
    """The wheel was turned over the chart; `at` is the share of its width."""

    factor: float
    at: float


@dataclass
class ChartDragged(Message):
    """The chart was dragged by a share of its width."""

    share: float


class ChartPanel(Panel):
    """Framed chart. The page sets the fields, then calls `redraw`."""

    def __init__(self) -> None:
        super().__init__()
        self.window = ChartWindow()
        self.title = ""
        self.today = ""
        self.first: Series | None = None
        self.second: Series | None = None
        self.second_shift_s = 0.0
        """Seconds by which the second series is older; 0: another profile in the same period."""
        self.second_name = ""
        self.marks: Sequence[TimelineMark] = ()
        self.failure_text: str | None = None
        self.cursor: float | None = None
        self._pressed_at: int | None = None
        self._dragged = False

    @property
    def cells(self) -> int:
        return max(self.size.width - 4 - AXIS, 1)

    def draw(self, view: View, width: int, height: int) -> list[Line]:
        if height == AS_TALL_AS_NEEDED:
            height = 12
        begin, end = self.window.period(view.now)
        inner, rows = width - 4, height - 4
        if self.first is None or rows < LEAST_ROWS:
            told = [styled(self.failure_text or "reading the history…", Style.BAD if self.failure_text else Style.DIM)]
            return frame(told, width, EdgeText(styled(self.title, Style.STRONG)), height=height)
        lines = self._plotted(begin, end, inner - AXIS, rows)
        foot = EdgeText(self._mark_text(begin, end), styled(self._span(begin, end, view.now), Style.DIM))
        return frame(lines, width, EdgeText(self._head(width - 9), styled(self.today, Style.DIM)), foot)

    def _plotted(self, begin: float, end: float, cells: int, rows: int) -> list[Line]:
        if self.first is None:
            return []
        top = nice_top(max(_highest(self.first), _highest(self.second)))
        cursor = None
        if self.cursor is not None and begin <= self.cursor <= end:
            cursor = min(int(share(self.cursor, begin, end) * cells), cells - 1)
        unit = unit_text(self.first.unit)
        first = columns(self.first, begin, end, 2 * cells)
        second = columns(self.second, begin - self.second_shift_s, end - self.second_shift_s, 2 * cells)
        last = _mean(self.first, bucket_at(self.first, None))
        lines = range_chart(first, second, rows, top, cursor=cursor, axis=unit, last=last)
        shares = [(share(at, begin, end), text) for at, text in ticks(begin, end, cells // TICK_CELLS)]
        signs = [ChartMark(share(one.at, begin, end), *sign_of(one)) for one in self.marks if begin <= one.at < end]
        lines += [mark_row(signs, cells), tick_row(shares, cells)]
        if not any(self.first.count):
            lines[rows // 2] = styled("Nothing was measured in this period.", Style.DIM)
        return lines

    def _span(self, begin: float, end: float, now: float) -> str:
        width = self.first.step_s if self.first else 0.0
        step = max(width, MINUTE_S)
        return f"{moment_text(begin, step, now)} to {moment_text(end, step, now)}, {span_text(width)} a bucket"

    def _head(self, width: int) -> Line:
        """Join title, moment and values; where they have no room, the spans give way first and the title last."""
        title, spans, values = styled(self.title, Style.STRONG), self._values(spans=True), self._values()
        choices = ([title, *spans], [title, *values], [title, *values[1:]], values)
        found = (join(parts, styled("  ")) for parts in choices)
        return next((line for line in found if length(line) <= width), clip(join(values[1:], styled("  ")), width))

    def _values(self, *, spans: bool = False) -> list[Line]:
        """Return the moment under the cursor and its values, else the last ones."""
        first = self.first
        if first is None:
            return []
        unit = value_text(first.unit)
        at = self.cursor
        own = bucket_at(first, at)
        moment = styled(moment_text(at, first.step_s), Style.PLAIN) if at is not None else styled("last", Style.DIM)
        parts = [moment, _value_text(first, own, unit, Style.GOOD, spans=spans)]
        if self.second is not None:
            other = bucket_at(self.second, at - self.second_shift_s if at is not None else None)
            told = _value_text(self.second, other, unit, Style.PLAIN, spans=spans)
            parts.append(styled(f"{self.second_name} ", Style.DIM) + told)
            now, before = _mean(first, own), _mean(self.second, other)
            if now is not None and before:
                parts.append(styled(f"{(now / before - 1) * 100:+.0f} %", Style.STRONG))
        return parts

    def _mark_text(self, begin: float, end: float) -> Line:
        """Return the mark nearest to the cursor, or the meaning of the signs."""
        if self.cursor is None or not self.marks:
            return styled("▲ swap  ! kill, incident", Style.DIM) if self.marks else EMPTY
        near = min(self.marks, key=lambda one: abs(one.at - (self.cursor or 0.0)))
        if abs(near.at - self.cursor) > (end - begin) * NEAR:
            return EMPTY
        glyph, style = sign_of(near)
        return styled(f"{glyph} ", style) + styled(f"{moment_text(near.at, 60)[-5:]} {near.text}")

    def move_cursor(self, by: int, now: float) -> None:
        """Move the cursor by cells; the first move puts it at the end of the window."""
        begin, end = self.window.period(now)
        cell = (end - begin) / self.cells
        if self.cursor is None or not begin <= self.cursor <= end:
            self.cursor = end - cell / 2 if by < 0 else begin + cell / 2
        else:
            self.cursor = min(max(self.cursor + by * cell, begin), end)
        self.redraw()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.post_message(ChartZoomed(0.5, self._share_at(event.x)))

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.post_message(ChartZoomed(2.0, self._share_at(event.x)))

    def on_mouse_down(self, event: events.MouseDown) -> None:
        self._pressed_at, self._dragged = event.x, False
        self.capture_mouse()

    def on_mouse_move(self, event: events.MouseMove) -> None:
        if self._pressed_at is not None and event.x != self._pressed_at:
            self._dragged = True
            self.post_message(ChartDragged((self._pressed_at - event.x) / self.cells))
            self._pressed_at = event.x

    def on_mouse_up(self, event: events.MouseUp) -> None:
        """Set the cursor where the button was pressed and not moved."""
        self.release_mouse()
        if self._pressed_at is not None and not self._dragged:
            begin, end = self.window.period(self.services.view.now)
            self.cursor = begin + self._share_at(event.x) * (end - begin)
            self.redraw()
        self._pressed_at = None

    def _share_at(self, x: int) -> float:
        return min(max((x - 2 + 0.5) / self.cells, 0.0), 1.0)


def _highest(series: Series | None) -> float:
    return max((value for value in series.max if value), default=0.0) if series else 0.0


def sign_of(mark: TimelineMark) -> tuple[str, Style]:
    from sparkdash.domain.history import MarkKind  # no first frame has a mark

    if mark.kind is MarkKind.SWAP:
        return "▲", Style.BAD if mark.level is Level.ERROR else Style.GOOD
    if mark.kind is MarkKind.NOTICE:
        return "·", Style.WARN if mark.level is not Level.INFO else Style.DIM
    return "!", Style.BAD


def share(at: float, begin: float, end: float) -> float:
    return (at - begin) / (end - begin) if end > begin else 0.0


def bucket_at(series: Series, at: float | None) -> int | None:
    """Return the index of the bucket that holds `at`, or of the last one with a value; None without one."""
    if at is None:
        return next((place for place in reversed(range(len(series.start))) if series.count[place]), None)
    return next((place for place, start in enumerate(series.start) if start <= at < start + series.step_s), None)


def unit_text(unit: str) -> Callable[[float], str]:
    match unit:
        case "bytes" | "bytes/s":
            suffix = "/s" if unit.endswith("/s") else ""
            return lambda value: f"{size(int(value))}{suffix}"
        case "share":
            return lambda value: f"{value * 100:.3g} %"
        case "tok/s" | "requests" | "tokens":
            return _plain_number
        case _:
            return lambda value: f"{value:.3g} {'°C' if unit == 'C' else unit}"


def value_text(unit: str) -> Callable[[float], str]:
    """Return the format of a single value, which always has its unit; on the axis some units have no room."""
    formatted = unit_text(unit)
    return formatted if formatted is not _plain_number else lambda value: f"{_plain_number(value)} {unit}"


def _plain_number(value: float) -> str:
    return f"{value:.0f}" if value >= 1000 else f"{value:.3g}"


def _mean(series: Series, place: int | None) -> float | None:
    return None if place is None else series.mean[place]


def _value_text(series: Series, place: int | None, unit: Callable[[float], str], style: Style, *, spans: bool) -> Line:
    mean = _mean(series, place)
    if mean is None or place is None:
        return styled(DASH, Style.DIM)
    low, high, span = series.min[place], series.max[place], ""
    if spans and low is not None and high is not None and low != high:
        span = f" ({_bare(low, high, unit)} to {unit(high)})"
    return styled(unit(mean), style) + styled(span, Style.DIM)


def _bare(low: float, high: float, unit: Callable[[float], str]) -> str:
    """Format the lower end of a span without a unit that is that of the upper end too."""
    ends = [unit(value).partition(" ") for value in (low, high)]
    return ends[0][0] if ends[0][2] == ends[1][2] else unit(low)
