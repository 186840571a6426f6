"""Words about one request, with its time line, and the dialog of its replay on another profile.

Rule: nothing is sent before the plan of exactly this choice was shown.
"""

import time
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from textual.binding import Binding, BindingType

from sparkdash.domain import phrases
from sparkdash.domain.history import MarkKind, Replay, TimelineMark
from sparkdash.domain.request import Request
from sparkdash.domain.state import Snapshot
from sparkdash.tui.lines.dialog_texts import switch_question
from sparkdash.tui.lines.words import request_state, stuck_on
from sparkdash.tui.mirror import View
from sparkdash.tui.screens.dialog import PlanDialog
from sparkdash.tui.text import EMPTY, Line, Style, align_right, clip, highlighted, merge_spans, pad, styled, wrap
from sparkdash.units import duration, natural, number

SHOWN = 7
NAME, VALUE = 16, 26


def profiles_to_replay_on(snapshot: Snapshot, request: Request) -> tuple[str, ...]:
    """Return the profiles that can replay it: those that run, A and B, those known here, the others; its own last."""
    able = [one.name for one in snapshot.profiles if not one.cannot_run and not one.engine.is_remote]
    marked = (snapshot.toggle_a, snapshot.toggle_b)

    def rank(name: str) -> tuple[object, ...]:
        known = (name in snapshot.engines, name in marked, name in snapshot.figures)
        return (name == request.profile, *(not each for each in known), natural(name))

    return tuple(sorted(able, key=rank))


def choice_lines(
    request: Request, names: Sequence[str], at: int, told: Replay | str | None, thinking: str, snapshot: Snapshot,
    width: int, broken: Sequence[str],
) -> list[Line]:  # fmt: skip
    """Format the profiles with the cursor on one; below them the plan of a replay there, or why there is none.

    `broken`: what to say where the profile's file has problems, and its last good version would start.
    """
    first = max(0, min(at - SHOWN // 2, len(names) - SHOWN))
    which = f"{request.id} of {request.client}, answered by {request.profile}"
    lines = [styled("request   ", Style.DIM) + styled(which), EMPTY]
    for place, name in enumerate(names[first : first + SHOWN], first):
        runs = "  runs" if name in snapshot.engines else ""
        line = styled("▸ " if place == at else "  ") + styled(name, Style.STRONG) + styled(runs, Style.DIM)
        lines.append(highlighted(pad(clip(line, width), width)) if place == at else clip(line, width))
    if len(names) > SHOWN:
        lines.append(styled(f"  {at + 1} of {len(names)}", Style.DIM))
    lines.append(EMPTY)
    if isinstance(told, Replay):
        lines += _plan_lines(told, snapshot, width, broken)
    elif told is not None:
        lines += wrap(told, width, Style.BAD)
    else:
        lines.append(styled(thinking, Style.DIM))
    command = f"sparkdash requests --replay {request.id} --on {names[at]}" if names else ""
    return [*lines, EMPTY, *wrap(command, width, Style.DIM)]


def outcome_lines(done: Replay, width: int) -> list[Line]:
    """Format the figures of both answers beside each other, and whether the answers are the same."""
    room = min(VALUE, (width - NAME) // 2)
    before = done.original.profile if done.original else "captured"
    lines = [_row("", before, done.profile, room, Style.STRONG)]
    lines += [_row(*row, room) for row in phrases.figure_rows(done)]
    same = done.match is not None and done.match.identical
    lines += [EMPTY, *wrap(phrases.match_text(done), width, Style.GOOD if same else Style.PLAIN)]
    return [*lines, *wrap(phrases.caution_text(done), width, Style.WARN)]


def _plan_lines(planned: Replay, snapshot: Snapshot, width: int, broken: Sequence[str]) -> list[Line]:
    plan = planned.plan
    caution = wrap(phrases.caution_text(planned), width, Style.WARN)
    if plan.expected_s == 0 and not plan.evict:
        return [*caution, *wrap(f"{planned.profile} runs: the replay stops nothing.", width)]
    return [*caution, *switch_question(plan, snapshot, width, warnings=broken)]


def _row(name: str, before: str, after: str, room: int, style: Style = Style.PLAIN) -> Line:
    values = [align_right(clip(styled(value, style), room - 1), room) for value in (before, after)]
    return pad(styled(name, Style.DIM), NAME) + values[0] + values[1]


_LABEL = 10


class TimePart(NamedTuple):
    """Part of a request's time, `seconds` long."""

    name: str
    seconds: float
    glyph: str
    style: Style


def parts_of(one: Request, marks: Sequence[TimelineMark]) -> list[TimePart]:
    """Split the time of a request; `marks` are the swaps around it."""
    end = one.finished_at
    if end is None:
        return []
    granted = one.granted_at if one.granted_at is not None else end
    swapped = min(_swap_seconds(one, granted, marks), granted - one.started_at)
    parts = [
        TimePart("waits", granted - one.started_at - swapped, "░", Style.DIM),
        TimePart("swap", swapped, "▚", Style.WARN),
    ]
    rest = end - granted
    if one.granted_at is not None and one.ttft_s is not None:
        prefill = min(one.ttft_s, rest)
        parts += [TimePart("prefill", prefill, "▒", Style.PLAIN), TimePart("decode", rest - prefill, "█", Style.GOOD)]
    elif one.granted_at is not None:
        parts.append(TimePart("engine", rest, "█", Style.GOOD))
    return [part for part in parts if part.seconds > 0.0005]


def _swap_seconds(one: Request, granted: float, marks: Sequence[TimelineMark]) -> float:
    found = 0.0
    for mark in marks:
        if mark.kind is MarkKind.SWAP and mark.profile == one.profile and mark.until is not None:
            found += max(min(mark.until, granted) - max(mark.at, one.started_at), 0.0)
    return found


def request_lines(one: Request, marks: Sequence[TimelineMark], view: View, width: int) -> list[Line]:
    """Format the time line of a request that has ended, or how far another one is, and its facts."""
    parts = parts_of(one, marks)
    lines = [_bar(parts, width), _moments(one, width), EMPTY] if parts else []
    if one.finished_at is None:
        waited = duration((one.granted_at or view.now) - one.started_at)
        so_far = [f"waited {waited}", phrases.held_text(one, view.now), f"ttft {number(one.ttft_s, 2, ' s')}"]
        lines += [_fact("state", "") + request_state(one, view), _fact("so far", ", ".join(filter(None, so_far)))]
        lines += [styled(" " * _LABEL) + row for row in wrap(stuck_on(one, view), width - _LABEL, Style.BAD)]
    lines += [_fact(part.name, f"{_seconds(part.seconds)}  {_told(part, one)}", part.style) for part in parts]
    lines += _facts(one, width)
    swaps = [mark for mark in marks if mark.kind is MarkKind.SWAP and mark.profile == one.profile]
    for mark in swaps[:2]:
        rows = enumerate(wrap(mark.text, width - _LABEL, Style.DIM, limit=2))
        lines += [_fact("" if at else "meanwhile", "") + row for at, row in rows]
    return lines


def _facts(one: Request, width: int) -> list[Line]:
    lines = [_fact("profile", one.profile)]
    lines.append(_fact("client", f"{one.client}{f', key {one.key}' if one.key else ''} · {one.route}"))
    if one.session is not None:
        lines.append(_fact("session", one.session))
    if one.energy_wh is not None:
        lines.append(_fact("energy", f"{one.energy_wh:.2f} Wh"))
    if one.finished_at is not None:
        ended = f"status {number(one.status)}, {one.finish_reason or one.state.value}"
        lines.append(_fact("ended", f"{ended}, after {_seconds(one.finished_at - one.started_at)}"))
    if one.internal:
        lines.append(_fact("sent by", "sparkdash itself: the demo's traffic"))
    if one.error:
        lines += [styled(" " * _LABEL) + row for row in wrap(one.error, width - _LABEL, Style.BAD)]
    return lines


def _told(part: TimePart, one: Request) -> str:
    if part.name == "prefill":
        cached = one.cached_tokens or 0
        computed = one.prompt_tokens - cached if one.prompt_tokens is not None else None
        return f"{number(computed)} computed of {number(one.prompt_tokens)} ({number(one.cached_tokens)} cached)"
    if part.name == "decode":
        think = f", {one.reasoning_tokens} of them reasoning" if one.reasoning_tokens else ""
        output, estimated = phrases.output_of_request(one)
        told = phrases.about(number(output), estimated=estimated)
        return f"{told} tokens{think}, {number(one.decode_tok_s, 1, ' tok/s')}"
    return {"waits": "for its place in the queue", "swap": f"for the load of {one.profile}"}.get(part.name, "")


def _bar(parts: Sequence[TimePart], width: int) -> Line:
    whole = sum(part.seconds for part in parts)
    cells = [max(1, round(part.seconds / whole * width)) for part in parts]
    cells[cells.index(max(cells))] += width - sum(cells)
    bars = [styled(part.glyph * max(count, 1), part.style) for part, count in zip(parts, cells, strict=True)]
    return merge_spans(span for bar in bars for span in bar)


def _moments(one: Request, width: int) -> Line:
    begin = time.strftime("%d %b %H:%M:%S", time.localtime(one.started_at))
    end = time.strftime("%H:%M:%S", time.localtime(one.finished_at or one.started_at))
    return pad(styled(begin, Style.DIM), max(width - len(end), 0)) + styled(end, Style.DIM)


def _fact(label: str, text: str, style: Style = Style.PLAIN) -> Line:
    return styled(f"{label:<{_LABEL}}", Style.DIM) + styled(text, Style.PLAIN if style is Style.DIM else style)


def _seconds(value: float) -> str:
    return f"{value:.2f}s" if value < 10 else duration(value)


CHOOSING = (("⏎", "replay"), ("j k", "profile"), ("esc", "back"))
WAITING, OVER = (("esc", "end the replay"),), (("⏎", "close"),)


class ReplayDialog(PlanDialog[None, Replay]):
    """Modal dialog that replays a request: profile, plan, both answers' figures."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,n", "leave", "leave"),
        Binding("j,down", "move(1)", "next profile"),
        Binding("k,up", "move(-1)", "profile above"),
        Binding("pagedown", "page(1)", "page down"),
        Binding("pageup", "page(-1)", "page up"),
        Binding("g,home", "go_to(0)", "first profile"),
        Binding("G,end", "go_to(-1)", "last profile"),
        Binding("enter", "begin", "replay"),
    ]

    def __init__(self, request: Request, snapshot: Snapshot) -> None:
        super().__init__("replay", self._lines, CHOOSING)
        self._request = request
        self._snapshot = snapshot
        self._names = profiles_to_replay_on(snapshot, request)
        self._at = 0
        self.problem = None if self._names else "No profile can run here."
        self.done: Replay | None = None
        self._broken: list[str] = []

    def chosen(self) -> str:
        return self._names[self._at]

    def _lines(self, width: int) -> list[Line]:
        if self.done is not None:
            return outcome_lines(self.done, width)
        if self.is_busy:
            told = f"{self.chosen()} answers request {self._request.id} again. esc ends the replay."
            return wrap(told, width)
        one, names, snapshot, plan = self._request, self._names, self._snapshot, self.problem or self.plan
        return choice_lines(one, names, self._at, plan, self.thinking, snapshot, width, self._broken)

    def redraw(self) -> None:
        self.text.keys = OVER if self.done is not None else WAITING if self.is_busy else CHOOSING
        super().redraw()

    def action_move(self, by: int) -> None:
        """Move to another profile; beyond an end, on from the other."""
        if self._names:
            self.action_go_to((self._at + by) % len(self._names))

    def action_page(self, by: int) -> None:
        self.action_go_to(max(0, min(self._at + by * SHOWN, len(self._names) - 1)))

    def action_go_to(self, place: int) -> None:
        if self._names and not self.is_busy and self.done is None:
            self._at = place % len(self._names)
            self.replan()

    def action_begin(self) -> None:
        if self.done is not None:
            self.dismiss()
        else:
            super().action_begin()

    async def planned(self) -> Replay:
        daemon, problems = self.services.daemon, self._snapshot.problems
        planned = await daemon.replay(request=self._request.id, on=self.chosen())
        self._broken = phrases.last_good_lines(await daemon.profile(name=planned.profile), problems) if problems else []
        return planned

    def may_begin(self, plan: Replay) -> bool:
        return plan.plan.fits is not False

    def stops(self, plan: Replay) -> bool:
        return bool(plan.plan.evict or self._broken)

    async def carry_out(self) -> None:
        self.done = await self.services.daemon.replay(request=self._request.id, on=self.chosen(), begin=True)
