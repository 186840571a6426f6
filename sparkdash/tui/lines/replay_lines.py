"""Lines of the dialog that replays a captured request: the profiles, what the replay stops, both answers.

Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from sparkdash.domain.history import Replay
from sparkdash.domain.lease import Request
from sparkdash.domain.phrases import caution_text, figure_rows, match_text
from sparkdash.domain.profile import EngineKind
from sparkdash.domain.state import Snapshot
from sparkdash.natural import natural
from sparkdash.tui.ink import EMPTY, Ink, Line, align_right, clip, highlighted, inked, pad, wrap
from sparkdash.tui.lines.questions import switch_question

SHOWN = 7
"""Profiles around the cursor that are shown."""
NAME, VALUE = 16, 26


def profiles_to_replay_on(snapshot: Snapshot, request: Request) -> tuple[str, ...]:
    """Return the profiles that a request can be replayed on: those that run, A and B, those that ran here
    before, then the others; its own last.
    """
    able = [one.name for one in snapshot.profiles if not one.cannot_run and one.engine is not EngineKind.REMOTE]
    marked = (snapshot.toggle_a, snapshot.toggle_b)

    def rank(name: str) -> tuple[object, ...]:
        known = (name in snapshot.engines, name in marked, name in snapshot.figures)
        return (name == request.profile, *(not each for each in known), natural(name))

    return tuple(sorted(able, key=rank))


def choice_lines(
    request: Request, names: Sequence[str], at: int, told: Replay | str | None, snapshot: Snapshot, width: int
) -> list[Line]:
    """Format the profiles with the cursor on one; below them the plan of a replay there, or why there is none."""
    first = max(0, min(at - SHOWN // 2, len(names) - SHOWN))
    lines = [_fact("request", f"{request.id} of {request.client}, answered by {request.profile}"), EMPTY]
    for place, name in enumerate(names[first : first + SHOWN], first):
        runs = "  runs" if name in snapshot.engines else ""
        line = inked("▸ " if place == at else "  ") + inked(name, Ink.STRONG) + inked(runs, Ink.DIM)
        lines.append(highlighted(pad(clip(line, width), width)) if place == at else clip(line, width))
    if len(names) > SHOWN:
        lines.append(inked(f"  {at + 1} of {len(names)}", Ink.DIM))
    lines.append(EMPTY)
    if isinstance(told, Replay):
        lines += _plan_lines(told, snapshot, width)
    elif told is not None:
        lines += wrap(told, width, Ink.BAD)
    else:
        lines.append(inked("the plan is made…", Ink.DIM))
    command = f"sparkdash requests --replay {request.id} --on {names[at]}" if names else ""
    return [*lines, EMPTY, *wrap(command, width, Ink.DIM)]


def waiting_lines(request: Request, profile: str, width: int) -> list[Line]:
    """Say that the replay is under way."""
    told = f"{profile} answers request {request.id} again. esc ends the replay."
    return wrap(told, width)


def outcome_lines(done: Replay, width: int) -> list[Line]:
    """Format the figures of both answers beside each other, and whether the answers are the same."""
    room = min(VALUE, (width - NAME) // 2)
    before = done.original.profile if done.original else "captured"
    lines = [_row("", before, done.profile, room, Ink.STRONG)]
    lines += [_row(*row, room) for row in figure_rows(done)]
    same = done.match is not None and done.match.identical
    lines += [EMPTY, *wrap(match_text(done), width, Ink.GOOD if same else Ink.PLAIN)]
    return [*lines, *wrap(caution_text(done), width, Ink.WARN)]


def _plan_lines(planned: Replay, snapshot: Snapshot, width: int) -> list[Line]:
    plan = planned.plan
    caution = wrap(caution_text(planned), width, Ink.WARN)
    if plan.expected_s == 0 and not plan.evict:
        return [*caution, *wrap(f"{planned.profile} runs: the replay stops nothing.", width)]
    return [*caution, *switch_question(plan, snapshot, width)]


def _fact(label: str, text: str) -> Line:
    return inked(f"{label:<10}", Ink.DIM) + inked(text)


def _row(name: str, before: str, after: str, room: int, ink: Ink = Ink.PLAIN) -> Line:
    values = [align_right(clip(inked(value, ink), room - 1), room) for value in (before, after)]
    return pad(inked(name, Ink.DIM), NAME) + values[0] + values[1]
