"""Lines of a plan in short: whether a profile fits now, on which boxes, what leaves for it, and how long it takes.

Pure.
"""

from __future__ import annotations

from sparkdash.domain.swap import Plan
from sparkdash.tui.ink import EMPTY, Ink, Line, inked, join
from sparkdash.tui.lines import words
from sparkdash.units import duration, gib


def plan_lines(plan: Plan, boxes: str = "") -> list[Line]:
    """Format a plan in two lines: whether it fits, and on which boxes; what leaves, and how long it takes."""
    where = inked(f"on {boxes}", Ink.PLAIN) if boxes else EMPTY
    dots = inked(" · ", Ink.FAINT)
    if plan.expected_s == 0 and not plan.evict:
        return [join([inked("runs now", Ink.GOOD), where], dots)]
    verdict = {
        True: inked("fits: yes", Ink.GOOD),
        False: inked("fits: no", Ink.BAD),
        None: inked("fits: not sure", Ink.DIM),
    }[plan.fits]
    each = " on each" if len(plan.nodes) > 1 else ""
    need = inked(f"needs {words.needed_memory(plan)} of {gib(plan.available_bytes, 0)}{each}", Ink.PLAIN)
    leaves = inked(_leaves(plan), Ink.PLAIN)
    again = inked(
        f"load ~{duration(plan.expected_s)}" if plan.expected_s is not None else "load time not known yet", Ink.DIM
    )
    return [join([verdict, need, where], dots), join([leaves, again], dots)]


def _leaves(plan: Plan) -> str:
    others = [name for name in plan.evict if name != plan.profile]
    stay = "beside what runs" if plan.beside else "nothing has to leave"
    after = f"after {', '.join(others)} leaves" if others else stay
    if plan.profile not in plan.evict:
        return after
    return "its file was edited: the engine is restarted" + (f" {after}" if others else "")
