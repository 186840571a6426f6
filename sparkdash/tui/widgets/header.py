"""Title bar, notice row and footer of every page.

Rule: a lost link is a state in the title bar, not an error.
"""

import time
from collections.abc import Sequence
from functools import lru_cache
from itertools import takewhile
from typing import NamedTuple

from textual import events

from sparkdash.domain.engine import EngineState
from sparkdash.domain.event import Level
from sparkdash.domain.swap import Swap, SwapOutcome
from sparkdash.tui.layout import is_compact
from sparkdash.tui.lines import words
from sparkdash.tui.lines.node_lines import hosts_line
from sparkdash.tui.lines.swap_progress import goal
from sparkdash.tui.mirror import ConnectionState, View
from sparkdash.tui.text import EMPTY, Line, Style, clip, dimmed, join, justify, key_hint, length, shorten_apart, styled
from sparkdash.tui.widgets.panel import PageAsked, Panel
from sparkdash.units import counted, number

GAP = styled("  ")
RECENT_S = 600.0
"""Seconds that a failed swap or a notice stays on the notice row; the history page keeps it."""

OLD_S = 120.0
"""Seconds after which it is dim."""
MORE, SHORT_MORE = GAP + key_hint("n", "what to do"), GAP + styled("n", Style.STRONG)

NARROWEST_NAME = 8
NARROWEST_HINT = 8
"""Cells of the hint that is always there."""
LEAST_FOR_RATE = 72

KEY_NAMES = {
    "/": "slash", "?": "question_mark", "⏎": "enter", "esc": "escape", ",": "comma", ":": "colon",
    "[": "left_square_bracket", "]": "right_square_bracket", "+": "plus", "=": "equals_sign", "-": "minus",
    "←": "left", "→": "right",
}  # fmt: skip
"""Keys of the hints by the names that Textual gives them, where they differ."""


def shown_key(key: str) -> str:
    """Return a key as the hints write it."""
    return next((shown for shown, name in KEY_NAMES.items() if name == key), key)


PAGES = {
    "dashboard": "Dash",
    "profiles": "Profiles",
    "requests": "Requests",
    "compare": "A/B",
    "logs": "Logs",
    "history": "History",
    "box": "Box",
}


class TitleBar(Panel):
    """Title bar: sparkdash, host, SIMULATED, what runs, the link, a run of the bench, requests in flight, the time."""

    def draw(self, view: View, width: int, height: int) -> list[Line]:  # noqa: ARG002 - always one row
        host = hosts_line(view)
        simulated = styled("SIMULATED", Style.WARN) if view.simulated else EMPTY
        clock = styled(time.strftime("%H:%M ", time.localtime(view.here)), Style.DIM)
        far = box_rate(view) + _far(view) if width >= LEAST_FOR_RATE else _far(view, narrow=True)
        if self.is_attached and is_compact(self.app.size.height):
            far = _old(view) + far
        room = width - length(far) - length(clock) - 2
        parts = [styled("sparkdash", Style.GOOD), host, simulated, _runs(view)]
        left = styled(" ") + join(parts, GAP)
        for less in (parts[1:], parts[2:]):  # what runs is dropped last
            left = left if length(left) <= room else styled(" ") + join(less, GAP)
        if length(left) > room:  # a simulated figure never stands without its mark
            left = styled(" SIM  ", Style.WARN) if view.simulated else styled(" ")
            left += _runs(view, room - length(left))
        return [justify(clip(left, room), far + clock, width)]


def _runs(view: View, cells: int | None = None) -> Line:
    """Name the large engine or swap, then what loads beside it; the names give way to the `cells` there are."""
    if swap := view.large_swap:
        leaves = swap.evict[0] if len(swap.evict) == 1 else f"{len(swap.evict)} engines"
        what = swap.target or f"stop {leaves}"
        more = styled(f" +{len(view.swaps) - 1}", Style.DIM) if len(view.swaps) > 1 else EMPTY
        return _fitted(what, view, cells, before=_stage(swap) + styled(" → "), after=more)
    if view.engine is None:
        return styled("nothing runs", Style.DIM) if view.snapshot else EMPTY
    state = styled(" ") + words.engine_state(view.engine, view)
    loads = []
    for swap in view.swaps:
        done = styled(f" {swap.fraction * 100:.0f} %") if swap.fraction is not None else EMPTY
        loads.append(_stage(swap, "◌ ") + styled(f" {goal(swap)}") + done)
    if cells is not None and loads:
        loads = [_counted_loads(view.swaps)]
    return _fitted(view.engine.profile, view, cells, after=join([state, *loads], GAP))


def _stage(swap: Swap, glyph: str = "") -> Line:
    if swap.still_since is not None:
        return styled("◌ stalled", Style.WARN)
    return styled(f"{glyph}{swap.phase}", Style.PLAIN)


def _counted_loads(swaps: Sequence[Swap]) -> Line:
    still = sum(swap.still_since is not None for swap in swaps)
    if still:
        return styled(f"◌ {still} stalled", Style.WARN)
    return styled(f"◌ {len(swaps)}", Style.PLAIN) + styled(" load" + "s" * (len(swaps) == 1), Style.DIM)


def _fitted(name: str, view: View, cells: int | None, *, before: Line = EMPTY, after: Line = EMPTY) -> Line:
    """Put a name between two texts, cut to what they leave of `cells`."""
    if cells is not None:
        name = shorten_apart(name, max(cells - length(before) - length(after), NARROWEST_NAME), view.profile_names)
    return before + styled(name, Style.STRONG) + after


def box_rate(view: View) -> Line:
    """Add up the decode rates of all engines; empty while none is known, or they are old."""
    total = view.sample.decode if view.sample and view.sample_age_s is None else None
    if total is None or total.value is None:
        return EMPTY
    told = number(total.value, 1 if total.value < 1000 else 0)
    return styled(f"{'~' if total.estimated else ''}{told}", Style.PLAIN) + styled(" tok/s  ", Style.DIM)


def _old(view: View) -> Line:
    """Tell the age of stale figures, which a low terminal has no frame for; a lost link tells its own."""
    age = view.engine_age_s(view.engine.profile) if view.engine else view.sample_age_s
    told = age is not None and view.connection is ConnectionState.LIVE
    return styled(f"{words.age(age or 0.0)} old  ", Style.WARN) if told else EMPTY


def _far(view: View, *, narrow: bool = False) -> Line:
    since = words.age(view.here - view.connection_since)
    if view.connection is ConnectionState.LOST:
        return styled(f"✗ link lost {since}, retrying  ", Style.BAD)
    if view.connection is ConnectionState.REFUSED:
        return styled("✗ no link  ", Style.BAD)
    if view.snapshot is None:
        return styled("connecting  ", Style.WARN)
    count = len(view.snapshot.requests)
    run = styled(f"measuring {view.measuring.share * 100:.0f} %  ", Style.WARN) if view.measuring else EMPTY
    if run and narrow:
        return run
    return run + styled(f"{count} in flight  ", Style.PLAIN if count else Style.DIM)


class HintRow(NamedTuple):
    """Row of hints; of each the first cell, the cell after the last, and the key."""

    line: Line = EMPTY
    places: Sequence[tuple[int, int, str]] = ()


NO_HINTS = HintRow()


class Hints(Panel):
    """Row with hints of keys, each of which a click presses."""

    def __init__(self, keys: str) -> None:
        """Make a row. `keys` alternates key and word: "s switch  / find"."""
        super().__init__()
        self._keys = tuple(keys.split("  "))
        self._shown = NO_HINTS

    def change_keys(self, keys: str) -> None:
        self._keys = tuple(keys.split("  "))
        self.redraw()

    def on_click(self, event: events.Click) -> None:
        if key := next((key for first, last, key in self._shown.places if first <= event.x < last), None):
            self.app.simulate_key(key)
        else:
            self.click_beside(event.x)

    def click_beside(self, x: int) -> None:
        """Answer a click that meets no hint."""


class NoticeRow(Hints):
    """Notice row: the answer to the last key, else the latest notice, else the keys that the footer has no room for."""

    def draw(self, view: View, width: int, height: int) -> list[Line]:  # noqa: ARG002 - always one row
        if line := notice_row(view, width - 2):
            self._shown = NO_HINTS
            return [styled(" ") + line]
        self._shown = more_hints(self._keys, width)
        return [self._shown.line]


def notice_row(view: View, width: int) -> Line:
    """Return what there is to say in `width` cells: trouble ends with the key that shows all of it, and fades."""
    if said := _said(view):
        return clip(said, width)
    told = _happened(view, RECENT_S) or _problems(view)
    more = MORE if width >= LEAST_FOR_RATE else SHORT_MORE
    return clip(told, width - length(more)) + more if told else EMPTY


def _said(view: View) -> Line:
    """Return the answer to the last key, unless an error followed: "is starting" must not cover a failure."""
    if view.feedback is None:
        return EMPTY
    last = next((one for one in (view.snapshot.notices if view.snapshot else ()) if one.level is Level.ERROR), None)
    if last is not None and last.at is not None and last.at > view.feedback.at + view.now - view.here:
        return EMPTY
    return styled(view.feedback.text, Style.BAD if view.feedback.bad else Style.STRONG)


def _happened(view: View, within_s: float) -> Line:
    return _failed(view, within_s) or _notice(view, within_s)


def _failed(view: View, within_s: float) -> Line:
    last = view.snapshot.swaps[0] if view.snapshot and view.snapshot.swaps else None
    if last is None or last.outcome is not SwapOutcome.FAILED or view.now - (last.ended_at or 0) > within_s:
        return EMPTY
    if view.engine is not None and view.engine.state is EngineState.FAILED and view.engine.profile == last.target:
        return EMPTY  # the card shows the failure in full
    why = f"{last.failure.code}: {last.failure.message}" if last.failure else "no reason given"
    line = styled(f"✗ {last.target or 'stop'} failed, {why}", Style.BAD)
    return line if view.now - (last.ended_at or 0) < OLD_S else dimmed(line)


def _notice(view: View, within_s: float) -> Line:
    notice = view.snapshot.trouble(view.now - within_s) if view.snapshot else None
    if notice is None:
        return EMPTY
    bad = notice.level is Level.ERROR
    line = styled(f"{'✗' if bad else '⚠'} {notice.text}", Style.BAD if bad else Style.WARN)
    return dimmed(line) if notice.at is not None and view.now - notice.at >= OLD_S else line


def _problems(view: View) -> Line:
    problems = view.snapshot.problems if view.snapshot else ()
    if not problems:
        return EMPTY
    place, _, what = problems[0].partition(": ")  # without the folder, which would leave no room for what is wrong
    first = f"{place.rpartition('/')[2]}: {what}"
    return styled(f"⚠ {counted(len(problems), 'problem')} in profile files: {first}", Style.WARN)


class Footer(Hints):
    """Footer: the pages by their digits, and the keys of this page."""

    def __init__(self, page: str, keys: str) -> None:
        """Make a footer. `page` is a key of PAGES."""
        super().__init__(keys)
        self._page = page

    def draw(self, view: View, width: int, height: int) -> list[Line]:  # noqa: ARG002 - always one row
        """Return the footer; in a low terminal a notice takes its place."""
        if self.is_attached and is_compact(self.app.size.height) and (told := notice_row(view, width - 2)):
            self._shown = NO_HINTS
            return [styled(" ") + told]
        self._shown = footer_row(self._page, self._keys, width)
        return [self._shown.line]

    def click_beside(self, x: int) -> None:
        end = 1 if has_names(self.size.width) else self.size.width
        for i, (name, title) in enumerate(PAGES.items(), 1):
            end += len(f"{i} {title} ")
            if x < end:
                self.post_message(PageAsked(name))
                return


def has_names(width: int) -> bool:
    return sum(len(f"{i} {title} ") for i, title in enumerate(PAGES.values(), 1)) + NARROWEST_HINT <= width


@lru_cache
def footer_row(page: str, keys: tuple[str, ...], width: int) -> HintRow:
    left = page_names(page, width)
    return _hint_row(left, fitting_hints(keys, width - length(left) - 2), width)


@lru_cache
def more_hints(keys: tuple[str, ...], width: int) -> HintRow:
    """Return the row of the hints that the footer has no room for."""
    shown = fitting_hints(keys, width - length(page_names("", width)) - 2)
    more = tuple(hint for hint in keys if hint not in shown)
    return _hint_row(EMPTY, fitting_hints(more, width - 1) if more else [], width)


def _hint_row(left: Line, hints: Sequence[str], width: int) -> HintRow:
    """Put the hints at the far end of a row."""
    told = join([_key(hint) for hint in hints], GAP) + styled(" ")
    at, places = width - length(told), list[tuple[int, int, str]]()
    for hint in hints:
        places += [(at + first, at + last, key) for first, last, key in _hint_places(hint)]
        at += length(_key(hint) + GAP)
    return HintRow(justify(left, told, width), places)


def page_names(here: str, width: int) -> Line:
    """Name the pages by their digits; in a narrow terminal only say that there are some."""
    if not has_names(width):
        return styled(f" 1-{len(PAGES)} ", Style.STRONG) + styled("pages", Style.DIM)
    line = EMPTY
    for i, (name, title) in enumerate(PAGES.items(), 1):
        digit, word = (Style.GOOD, Style.STRONG) if name == here else (Style.DIM, Style.PLAIN)
        line += styled(" ") + styled(f"{i} ", digit) + styled(title, word)
    return line


def fitting_hints(keys: tuple[str, ...], room: int) -> list[str]:
    """Return as many hints as fit; the last one, help in the footer, always does."""
    *first, last = keys
    while first and length(join([_key(hint) for hint in (*first, last)], GAP)) >= room:
        first.pop()
    return [*first, last]


def _key(pair: str) -> Line:
    """Format a key and its word: `c end it`; several one-letter words are keys: `a b mark`."""
    keys, rest = _keys_of(pair)
    return styled(" ".join(keys), Style.STRONG) + styled(f" {rest}", Style.DIM)


def _keys_of(pair: str) -> tuple[list[str], str]:
    first, *rest = pair.split(" ")
    keys = [first, *takewhile(lambda each: len(each) == 1, rest)]
    return keys, " ".join(rest[len(keys) - 1 :])


def _hint_places(pair: str) -> list[tuple[int, int, str]]:
    """Return the cells of each key of a hint; its word belongs to the last one."""
    keys, _ = _keys_of(pair)
    places, at = [], 0
    for key in keys:
        places.append((at, at + len(key) + 1, KEY_NAMES.get(key, key)))
        at += len(key) + 1
    first, _, key = places[-1]
    return [*places[:-1], (first, len(pair), key)]
