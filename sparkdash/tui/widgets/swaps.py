"""Table of the ended swaps, and the notices."""

import time
from collections.abc import Sequence
from functools import partial

from sparkdash.domain.event import Level, Notice
from sparkdash.domain.memory import GuardKill
from sparkdash.domain.swap import Swap
from sparkdash.tui.lines import words
from sparkdash.tui.lines.chart_window import DAY_S
from sparkdash.tui.lines.dialog_texts import MOST_LOG, failure_rows, kill_key
from sparkdash.tui.mirror import View
from sparkdash.tui.text import (
    EMPTY,
    EdgeText,
    Line,
    Style,
    align_right,
    clip,
    frame,
    key_hint,
    key_hints,
    length,
    pad,
    shorten_apart,
    styled,
    wrap,
)
from sparkdash.tui.widgets.panel import Panel
from sparkdash.tui.widgets.table import Table, TableRow
from sparkdash.units import DASH, duration

WHEN, TOOK, OUTCOME, MOST_NAME, LEAST_REASON = 10, 8, 14, 30, 12


def local_time(at: float | None, now: float, here: float) -> str:
    """Format a moment of the daemon's clock as local time, with its day or date when older; "-" when unknown."""
    if at is None:
        return DASH
    shown = "%H:%M:%S" if now - at < DAY_S else "%a %H:%M" if now - at < 6 * DAY_S else "%d %b"
    return time.strftime(shown, time.localtime(at + here - now))


class SwapTable(Table):
    """Table of the ended swaps, newest first."""

    title = "swaps"
    keys = key_hints(("⏎", "opens"))
    live = True
    nothing = "No swap yet."

    @property
    def framed(self) -> bool:
        return self.beside

    def head(self, width: int) -> Line:
        name = _name_cells(width)
        return styled(f" {'ended':<{WHEN}}{'came':<{name}} {'left':<{name}}{'took':>{TOOK}}  outcome", Style.DIM)

    def rows(self, view: View, width: int) -> list[TableRow]:
        swaps = view.snapshot.swaps if view.snapshot else ()
        dated: list[tuple[float, TableRow]] = []
        for one in swaps:
            copy = partial(one.model_dump_json, exclude_none=True)
            row = TableRow(one.id, partial(_line, one, view, width), copy, partial(_words, one))
            dated.append((one.ended_at or 0.0, row))
        for kill in _kills(view):
            line = partial(_kill_line, kill, view, width)
            dated.append((kill.at, TableRow(kill_key(kill), line, kill.model_dump_json, f"guard {kill.profile}")))
        return [row for _, row in sorted(dated, key=lambda each: -each[0])]


def _kills(view: View) -> Sequence[GuardKill]:
    guard = view.snapshot.guard if view.snapshot else None
    return guard.kills if guard else ()


def _kill_line(kill: GuardKill, view: View, width: int) -> Line:
    name = _name_cells(width)
    when = pad(styled(f" {local_time(kill.at, view.now, view.here)}", Style.DIM), WHEN + 1)
    dash, left = styled(DASH, Style.DIM), styled(shorten_apart(kill.profile, name, view.profile_names))
    names = pad(dash, name) + styled(" ") + pad(left, name)
    line = when + names + align_right(dash, TOOK) + styled("  ") + styled("✗ guard killed", Style.BAD)
    return _with_reason(line, kill.reason, width)


def _name_cells(width: int) -> int:
    return min(max((width - WHEN - TOOK - OUTCOME - 4) // 2, 12), MOST_NAME)


def _with_reason(line: Line, why: str, width: int) -> Line:
    """Put the reason behind a row where it has room; Enter shows all of it."""
    return clip(line + styled(f"  {why}", Style.DIM), width) if width - length(line) > LEAST_REASON else line


def _words(swap: Swap) -> str:
    """Return the text that the search looks in: every swap's JSON has the same keys."""
    why = (swap.failure.code, swap.failure.message) if swap.failure else ()
    return " ".join((swap.target or "", *swap.evict, words.CAUSES[swap.cause], *why))


def _line(swap: Swap, view: View, width: int) -> Line:
    name = _name_cells(width)
    word, style = words.OUTCOMES[swap.outcome] if swap.outcome else (DASH, Style.DIM)
    took = None if swap.ended_at is None else swap.ended_at - swap.started_at
    when = pad(styled(f" {local_time(swap.ended_at, view.now, view.here)}", Style.DIM), WHEN + 1)
    target = shorten_apart(swap.target or DASH, name, view.profile_names)
    came = styled(target, Style.PLAIN if swap.target else Style.DIM)
    boxes = view.boxes(swap.nodes) if swap.nodes else ""
    if boxes and length(came) + len(boxes) + len(" on ") <= name:
        came += styled(f" on {boxes}", Style.DIM)
    names = pad(came, name) + styled(" ")
    names += pad(styled(shorten_apart(", ".join(swap.evict) or DASH, name, view.profile_names), Style.DIM), name)
    why = swap.failure.message if swap.failure else words.CAUSES[swap.cause]
    line = when + names + align_right(styled(duration(took)), TOOK) + styled("  ") + pad(styled(word, style), OUTCOME)
    return _with_reason(line, why, width)


class NoticeList(Panel):
    """List of the notices, newest first, each in full as far as there is room."""

    def draw(self, view: View, width: int, height: int) -> list[Line]:
        told = notice_lines(view, width - 4)
        height = height or len(told) + 2
        body = told[: height - 2]
        all_of_it = key_hint("n", "all") if len(body) < len(told) else EMPTY
        return frame(body, width, EdgeText(styled("notices")), EdgeText(EMPTY, all_of_it), height=height)


def trouble_lines(view: View, width: int) -> list[Line]:
    """Format the last failed swap with its log, then every other notice and every broken file."""
    lines: list[Line] = []
    told = None
    last = next((one for one in (view.snapshot.swaps if view.snapshot else ()) if one.failure), None)
    if last is not None and last.failure is not None:
        when = local_time(last.ended_at, view.now, view.here)
        lines.append(styled(f"{last.target or 'stop'}, {when}", Style.STRONG))
        lines += failure_rows(last.failure, width, MOST_LOG)
        told = last.failure.message
    rest = notice_lines(view, width, told)
    return [*lines, *([EMPTY] if lines and rest else []), *rest]


def notice_lines(view: View, width: int, told: str | None = None) -> list[Line]:
    """Format the notices, without those that repeat what was `told` already, and the broken files."""
    snapshot = view.snapshot
    notices = [one for one in (snapshot.notices if snapshot else ()) if told is None or told not in one.text]
    rows = [row for notice in notices for row in _notice(notice, view, width)]
    rows += [row for problem in (snapshot.problems if snapshot else ()) for row in _problem(problem, width)]
    return rows or ([styled("No notices.", Style.DIM)] if told is None else [])


def _problem(problem: str, width: int) -> list[Line]:
    mark, indent = styled("⚠ ", Style.WARN), styled("  ")
    return [clip((indent if number else mark) + row, width) for number, row in enumerate(wrap(problem, width - 2))]


_LEVELS = {Level.INFO: ("·", Style.DIM), Level.WARNING: ("⚠", Style.WARN), Level.ERROR: ("✗", Style.BAD)}


def _notice(notice: Notice, view: View, width: int) -> list[Line]:
    glyph, style = _LEVELS[notice.level]
    when = styled(f"{local_time(notice.at, view.now, view.here):<8} ", Style.DIM) + styled(glyph, style) + styled(" ")
    indent = styled(" " * length(when))
    text = f"{notice.profile}: {notice.text}" if (notice.profile or "") not in notice.text else notice.text
    rows = wrap(text, max(width - length(when), 1))
    return [clip((indent if number else when) + row, width) for number, row in enumerate(rows)]
