"""Texts of the dialogs: questions before something is stopped, and errors after an order failed.

Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from sparkdash.domain.lease import Request, RequestState
from sparkdash.domain.phrases import now_available, plan_boxes, then_available
from sparkdash.domain.profile import ProfileSummary
from sparkdash.domain.state import Snapshot
from sparkdash.domain.swap import Plan, Swap
from sparkdash.errors import EngineError, ProfileError, SparkdashError
from sparkdash.tui.ink import EMPTY, Ink, Line, inked, pad, wrap, wrap_line
from sparkdash.tui.lines import words
from sparkdash.units import counted, duration, gib

FACT, SIZE = 17, 12
"""Widths of a fact's label and of an amount of memory, in cells."""
STOPS = "stops  "
"""Label of the engines that stop; every label of a question has this width."""


def error_lines(error: SparkdashError, width: int) -> list[Line]:
    """Format an error: message, hint, problems, evidence folder, last log lines."""
    lines = wrap(error.message, width, Ink.BAD)
    if error.hint:
        lines += wrap(f"→ {error.hint}", width, Ink.STRONG)
    if isinstance(error, ProfileError):
        lines += [line for problem in error.problems for line in wrap(problem, width)]
    if isinstance(error, EngineError):
        lines += wrap(f"evidence: {error.evidence}", width) if error.evidence else []
        lines += [inked(f"  {line}", Ink.DIM) for line in error.log_tail]
    return lines


def cannot_run_lines(profile: ProfileSummary, width: int) -> list[Line]:
    """Explain why a profile cannot run, and which one can."""
    lines = wrap(profile.cannot_run or "", width)
    if profile.nearest:
        lines += [EMPTY, *labelled("nearest that runs  ", wrap(profile.nearest, width - 19, Ink.STRONG))]
    return lines


def need_lines(plan: Plan, snapshot: Snapshot, width: int) -> list[Line]:
    """Format the plan as `sparkdash why` does: need by term, available memory, leaving engines, verdict."""
    room = width - FACT
    need, host = plan.need, snapshot.daemon.host
    lines: list[Line] = wrap(plan.held, width, Ink.WARN) if plan.held else []
    lines += _fact("need", f"{gib(need.total_bytes)}, {need.basis.value}", room)
    for term in need.terms:
        lines += _term(term.name, term.bytes, term.source, room)
    if need.peak_bytes is not None:
        lines += _term("peak", need.peak_bytes, "while it loads", room)
    each = " on each" if len(plan.nodes) > 1 else ""
    if boxes := plan_boxes(plan, host, several=bool(snapshot.nodes)):
        lines += _fact("runs on", boxes + (f", the need{each}" if each else ""), room)
    lines += _fact("available now", now_available(plan, host), room)
    lines += _fact("reserve", f"{gib(plan.reserve_bytes)}, kept free{each}", room)
    for name in plan.evict:
        lines += _fact("leaves", f"{name}: {plan.reasons.get(name, '')}", room)
    lines += _fact("stays", ", ".join(plan.beside), room)
    if plan.evict:
        lines += _fact("available then", f"{then_available(plan, host)}, without the reserve", room)
    if plan.expected_s:
        lines += _fact("takes about", duration(plan.expected_s), room)
    return [*lines, EMPTY, *wrap(plan.verdict, width, Ink.STRONG)]


def _term(name: str, amount: int | None, source: str, room: int) -> list[Line]:
    rows = wrap(source, room - SIZE, Ink.DIM) or [EMPTY]
    figure = pad(inked(f"{gib(amount):>{SIZE - 2}}"), SIZE)
    return labelled(
        f"{f'  {name}':<{FACT}}", [(inked(" " * SIZE) if at else figure) + row for at, row in enumerate(rows)]
    )


def _fact(label: str, told: str, room: int) -> list[Line]:
    return labelled(f"{label:<{FACT}}", wrap(told, room))


def switch_question(plan: Plan, snapshot: Snapshot, width: int) -> list[Line]:
    """Ask before a switch: what it stops, whether it fits, how long it takes."""
    room = width - len(STOPS)
    lines: list[Line] = wrap(plan.held, width, Ink.WARN) if plan.held else []
    for name in plan.evict:
        why = plan.reasons.get(name, "")
        lines += leaving_engine_lines(name, snapshot, width, frees=not why)
        lines += labelled("", wrap(why, room, Ink.DIM))
    lines += labelled("stays  ", wrap(", ".join(plan.beside), room))
    boxes = plan_boxes(plan, snapshot.daemon.host, several=bool(snapshot.nodes))
    lines += labelled("on     ", wrap(boxes, room)) if boxes else []
    lines.append(EMPTY)
    fits = {True: inked("yes", Ink.GOOD), False: inked("no", Ink.BAD), None: inked("not sure", Ink.WARN)}[plan.fits]
    then = gib(plan.available_bytes, 0) if len(plan.on_nodes) < 2 else then_available(plan, snapshot.daemon.host)
    memory = inked(
        f", needs {words.needed_memory(plan)}{' on each' if len(plan.nodes) > 1 else ''}, {then} available then",
        Ink.DIM,
    )
    lines += labelled("fits   ", wrap_line(fits + memory, room))
    return [*lines, *labelled("load   ", wrap_line(_load(plan), room))]


def stop_question(name: str, snapshot: Snapshot, width: int) -> list[Line]:
    """Ask before stopping an engine: what stops, and which waiting requests are refused."""
    waiting = sum(one.profile == name and one.state is RequestState.WAITING for one in snapshot.requests.values())
    lines = [*leaving_engine_lines(name, snapshot, width), *refused_lines(waiting, width)]
    return [*lines, EMPTY, *wrap("A request for it starts it again.", width, Ink.DIM)]


def stop_using_question(name: str, url: str | None, width: int) -> list[Line]:
    """Ask before detaching from a server that sparkdash cannot stop."""
    server = f"{name} is a server at {url or 'an unknown address'} that sparkdash did not start."
    text = f"{server} It keeps running, and its requests may finish."
    again = "A request for it uses it again."
    return [*wrap(text, width), EMPTY, *wrap(again, width, Ink.DIM)]


def cancel_question(swaps: Sequence[Swap], width: int) -> list[Line]:
    """Ask before cancelling swaps: what stops, and which requests are refused."""
    what = ", ".join(f"the start of {swap.target}" if swap.target else "the stop" for swap in swaps)
    waiting = sum(swap.waiting for swap in swaps)
    return [*labelled(STOPS, wrap(what, width - len(STOPS), Ink.STRONG)), *refused_lines(waiting, width)]


def end_request_question(request: Request, width: int) -> list[Line]:
    """Ask before ending a request: which one it is."""
    which = inked(f"{request.client} at {request.profile}", Ink.STRONG) + inked(f"  {request.id}", Ink.DIM)
    return labelled(STOPS, wrap_line(which, width - len(STOPS)))


def leaving_engine_lines(name: str, snapshot: Snapshot, width: int, *, frees: bool = True) -> list[Line]:
    """Format what leaves with an engine: its memory unless `frees` is False, and the requests that it serves.

    Waiting requests keep waiting, except when a user stops the engine.
    """
    served = sum(one.profile == name and one.state is not RequestState.WAITING for one in snapshot.requests.values())
    held = _held_bytes(name, snapshot)
    facts = [
        f"frees {gib(held)}" if frees and held is not None else "",
        f"{counted(served, 'request')} in flight may finish" if served else "",
    ]
    about = ", ".join(fact for fact in facts if fact)
    room = width - len(STOPS)
    return labelled(STOPS, wrap_line(inked(name, Ink.STRONG) + inked(f": {about}" if about else ""), room))


def _held_bytes(name: str, snapshot: Snapshot) -> int | None:
    memory = snapshot.sample.memory if snapshot.sample else None
    return memory.engines.get(name) if memory else None


def refused_lines(waiting: int, width: int) -> list[Line]:
    """Format how many waiting requests are refused."""
    what = f"{counted(waiting, 'request')} waiting for it: refused" if waiting else ""
    return labelled("", wrap(what, width - len(STOPS), Ink.WARN))


def labelled(label: str, rows: list[Line]) -> list[Line]:
    """Put `label` before the first row and indent the others."""
    cells = max(len(label), len(STOPS))
    return [inked(f"{'' if number else label:<{cells}}", Ink.DIM) + row for number, row in enumerate(rows)]


def _load(plan: Plan) -> Line:
    if plan.expected_s is None:
        return inked("not known yet: it has never run here", Ink.STRONG)
    return inked(f"about {duration(plan.expected_s)}", Ink.STRONG) + inked("; requests wait that long", Ink.DIM)
