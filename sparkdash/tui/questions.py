"""Questions: what a person reads before something is stopped, and after it did not work. Pure: plans and errors in, lines out."""

from __future__ import annotations

from sparkdash.domain.state import Snapshot
from sparkdash.domain.swap import Plan
from sparkdash.errors import EngineError, ProfileError, SparkdashError
from sparkdash.tui.ink import EMPTY, Ink, Line, join, say, wrap
from sparkdash.tui.widgets import words
from sparkdash.tui.widgets.profiles import needed
from sparkdash.units import duration, gib

WIDTH = 68


def told(error: SparkdashError) -> list[Line]:
    """Message, hint, every problem and the last log lines of an error."""
    lines = wrap(error.message, WIDTH, Ink.BAD)
    if error.hint:
        lines += wrap(f"→ {error.hint}", WIDTH, Ink.STRONG)
    if isinstance(error, ProfileError):
        lines += [line for problem in error.problems for line in wrap(problem, WIDTH)]
    if isinstance(error, EngineError):
        lines += [say(f"  {line}", Ink.DIM) for line in error.log_tail]
    return lines


def question(plan: Plan, snapshot: Snapshot) -> list[Line]:
    """What a switch stops, whether it fits, how long it takes."""
    lines: list[Line] = wrap(plan.held, WIDTH, Ink.WARN) if plan.held else []
    for name in plan.evict:
        why = plan.reasons.get(name, "")
        lines.append(stops(name, snapshot, frees=not why))
        lines += [say("       ") + line for line in wrap(why, WIDTH - 7, Ink.DIM)]
    if plan.beside:
        lines.append(say("stays  ", Ink.DIM) + say(", ".join(plan.beside), Ink.PLAIN))
    lines.append(EMPTY)
    fits = {True: say("yes", Ink.GOOD), False: say("no", Ink.BAD), None: say("not sure", Ink.WARN)}[plan.fits]
    memory = say(f", needs {needed(plan)}, {gib(plan.available_bytes, 0)} available then", Ink.DIM)
    lines.append(say("fits   ", Ink.DIM) + fits + memory)
    return [*lines, say("load   ", Ink.DIM) + _load(plan)]


def _load(plan: Plan) -> Line:
    if plan.expected_s is None:
        return say("not known yet: it never ran here", Ink.STRONG)
    return say(f"about {duration(plan.expected_s)}", Ink.STRONG) + say("; requests wait that long", Ink.DIM)


def stops(name: str, snapshot: Snapshot, *, frees: bool = True) -> Line:
    """What goes with an engine: its memory, unless that is told otherwise, and the requests that it serves."""
    open_ones = [r for r in snapshot.requests.values() if r.profile == name]
    memory = snapshot.sample.memory if snapshot.sample else None
    held = memory.engines.get(name) if memory else None
    facts = [
        f"frees {gib(held)}" if frees and held is not None else "",
        f"{words.count(len(open_ones), 'request')} in flight may finish" if open_ones else "",
    ]
    about = ", ".join(fact for fact in facts if fact)
    named = [say(name, Ink.STRONG), *([say(about, Ink.PLAIN)] if about else [])]
    return say("stops  ", Ink.DIM) + join(named, say(": ", Ink.DIM))
