"""Texts of the dialogs: questions, errors, findings, commands. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sparkdash.domain.engine import Failure
from sparkdash.domain.memory import GuardKill
from sparkdash.domain.node import Diagnosis, Finding, Status
from sparkdash.domain.phrases import plan_boxes, plan_facts, start_facts, then_available
from sparkdash.domain.profile import ProfileSummary
from sparkdash.domain.request import Request, RequestState
from sparkdash.domain.state import Snapshot
from sparkdash.domain.swap import Plan, Swap, SwapPhase, phases_of
from sparkdash.errors import EngineError, ProfileError, SparkdashError
from sparkdash.tui.lines import words
from sparkdash.tui.lines.log_lines import log_line
from sparkdash.tui.text import EMPTY, Line, Style, clip, join, pad, styled, wrap, wrap_line
from sparkdash.units import DASH, counted, duration, gib, percent, size

MOST_LOG = 12
"""Lines of a failed engine's log in a dialog."""
FACT, SIZE = 17, 12
"""Widths of a fact's label and of an amount of memory, in cells."""
STOPS = "stops  "
"""Label of the engines that stop; every label of a question has this width."""


def failure_rows(failure: Failure, width: int, log_lines: int = 3) -> list[Line]:
    """Format why an engine failed, what to do, where the evidence is, and its last log lines."""
    where = f"in {failure.phase}, " if failure.phase else ""
    status = f" (exit {failure.exit_code})" if failure.exit_code is not None else ""
    rows = wrap(f"✗ {where}{failure.code}{status}: {failure.message}", width, Style.BAD, limit=3)
    if failure.hint:
        rows += wrap(f"→ {failure.hint}", width, Style.STRONG, limit=3)
    if failure.evidence:
        rows += wrap(f"evidence: {failure.evidence}", width, limit=2)
    return rows + [clip(log_line(line), width) for line in failure.log_tail[-log_lines:]]


def error_lines(error: SparkdashError, width: int) -> list[Line]:
    lines = wrap(error.message, width, Style.BAD)
    if error.hint:
        lines += wrap(f"→ {error.hint}", width, Style.STRONG)
    if isinstance(error, ProfileError):
        lines += [line for problem in error.problems for line in wrap(problem, width)]
    if isinstance(error, EngineError):
        lines += wrap(f"evidence: {error.evidence}", width) if error.evidence else []
        lines += [styled(f"  {line}", Style.DIM) for line in error.log_tail]
    return lines


def cannot_run_lines(profile: ProfileSummary, width: int) -> list[Line]:
    lines = wrap(profile.cannot_run or "", width)
    if profile.nearest:
        lines += [EMPTY, *labelled("nearest that runs  ", wrap(profile.nearest, width - 19, Style.STRONG))]
    return lines


def need_lines(plan: Plan, snapshot: Snapshot, width: int) -> list[Line]:
    """Format the plan as `sparkdash why` does: need by term, available memory, leaving engines, verdict."""
    room = width - FACT
    need = plan.need
    lines: list[Line] = wrap(plan.held, width, Style.WARN) if plan.held else []
    lines += _fact("need", f"{gib(need.total_bytes)}, {need.basis.value}", room)
    for term in need.terms:
        lines += _term(term.name, term.bytes, term.source, room)
    if need.peak_bytes is not None:
        lines += _term("peak", need.peak_bytes, "while it loads", room)
    for label, told in plan_facts(plan, snapshot):
        lines += _fact(label, told, room)
    return [*lines, EMPTY, *wrap(plan.verdict, width, Style.STRONG)]


def description_lines(plan: Plan, snapshot: Snapshot, width: int) -> list[Line]:
    """Describe a profile: how its last start failed or why it is parked, then what it needs."""
    engine, parked = snapshot.engines.get(plan.profile), snapshot.parked.get(plan.profile)
    failure = parked.failure if parked else engine.failure if engine else None
    profile = snapshot.profile(plan.profile)
    about = wrap(profile.about or "", width) if profile else []
    failed = [*failure_rows(failure, width, MOST_LOG), EMPTY] if failure else []
    return [*about, EMPTY, *failed, *need_lines(plan, snapshot, width)]


def _term(name: str, amount: int | None, source: str, room: int) -> list[Line]:
    rows = wrap(source, room - SIZE, Style.DIM) or [EMPTY]
    figure = pad(styled(f"{gib(amount):>{SIZE - 2}}"), SIZE)
    told = [(styled(" " * SIZE) if at else figure) + row for at, row in enumerate(rows)]
    return labelled(f"{f'  {name}':<{FACT}}", told)


def _fact(label: str, told: str, room: int) -> list[Line]:
    return labelled(f"{label:<{FACT}}", wrap(told, room))


def switch_question(plan: Plan, snapshot: Snapshot, width: int, warnings: Sequence[str] = ()) -> list[Line]:
    """Ask before a switch: what it stops, whether it fits, how long it takes."""
    room = width - len(STOPS)
    lines: list[Line] = wrap(plan.held, width, Style.WARN) if plan.held else []
    lines += [line for text in warnings for line in wrap(text, width, Style.WARN)]
    for name in plan.evict:
        lines += leaving_engine_lines(name, snapshot, width, plan.reasons.get(name, ""))
    lines += labelled("stays  ", wrap(", ".join(plan.beside), room))
    boxes = plan_boxes(plan, snapshot.daemon.host, several=bool(snapshot.nodes))
    lines += labelled("on     ", wrap(boxes, room)) if boxes else []
    lines += [EMPTY, *_fit_lines(plan, snapshot, room)]
    load = styled("not known yet: it has never run here", Style.STRONG)
    if plan.expected_s is not None:
        load = styled(f"about {duration(plan.expected_s)}", Style.STRONG)
        load += styled("; requests wait that long", Style.DIM)
    return [*lines, *labelled("load   ", wrap_line(load, room))]


def _fit_lines(plan: Plan, snapshot: Snapshot, room: int) -> list[Line]:
    fits = {True: styled("yes", Style.GOOD), False: styled("no", Style.BAD), None: styled("not sure", Style.WARN)}[
        plan.fits
    ]
    then = gib(plan.available_bytes, 0) if len(plan.on_nodes) < 2 else then_available(plan, snapshot.daemon.host)
    each = " on each" if len(plan.nodes) > 1 else ""
    memory = f", needs {words.needed_memory(plan)}{each}" + (f", {then} available then" if then != DASH else "")
    lines = wrap_line(fits + styled(memory, Style.DIM), room)
    return labelled("fits   ", lines + (wrap(plan.verdict, room, Style.BAD) if plan.fits is False else []))


def stop_question(name: str, snapshot: Snapshot, width: int) -> list[Line]:
    waiting = sum(one.profile == name and one.state is RequestState.WAITING for one in snapshot.requests.values())
    lines = [*leaving_engine_lines(name, snapshot, width), *refused_lines(waiting, width)]
    return [*lines, EMPTY, *wrap("A request for it starts it again.", width, Style.DIM)]


def stop_using_question(name: str, url: str | None, width: int) -> list[Line]:
    server = f"{name} is a server at {url or 'an unknown address'} that sparkdash did not start."
    text = f"{server} It keeps running, and its requests may finish."
    again = "A request for it uses it again."
    return [*wrap(text, width), EMPTY, *wrap(again, width, Style.DIM)]


def cancel_question(swaps: Sequence[Swap], width: int) -> list[Line]:
    what = ", ".join(f"the start of {swap.target}" if swap.target else "the stop" for swap in swaps)
    waiting = sum(swap.waiting for swap in swaps)
    return [*labelled(STOPS, wrap(what, width - len(STOPS), Style.STRONG)), *refused_lines(waiting, width)]


def end_request_question(request: Request, width: int) -> list[Line]:
    which = styled(f"{request.client} at {request.profile}", Style.STRONG) + styled(f"  {request.id}", Style.DIM)
    return labelled(STOPS, wrap_line(which, width - len(STOPS)))


def leaving_engine_lines(name: str, snapshot: Snapshot, width: int, why: str = "") -> list[Line]:
    """Format what leaves with an engine: its memory, and the requests that it serves, unless `why` tells it; then why.

    Waiting requests keep waiting, except when a user stops the engine.
    """
    served = sum(one.profile == name and one.state is not RequestState.WAITING for one in snapshot.requests.values())
    held = _held_bytes(name, snapshot)
    facts = [
        f"frees {gib(held)}" if not why and held is not None else "",
        f"{counted(served, 'request')} in flight may finish" if served and "may finish" not in why else "",
    ]
    about = ", ".join(fact for fact in facts if fact)
    room = width - len(STOPS)
    leaves = wrap_line(styled(name, Style.STRONG) + styled(f": {about}" if about else ""), room)
    return labelled(STOPS, [*leaves, *wrap(why, room, Style.DIM)])


def _held_bytes(name: str, snapshot: Snapshot) -> int | None:
    memory = snapshot.sample.memory if snapshot.sample else None
    return memory.engines.get(name) if memory else None


def refused_lines(waiting: int, width: int) -> list[Line]:
    what = f"{counted(waiting, 'request')} waiting for it: refused" if waiting else ""
    return labelled("", wrap(what, width - len(STOPS), Style.WARN))


def labelled(label: str, rows: list[Line]) -> list[Line]:
    """Put `label` before the first row and indent the others."""
    cells = max(len(label), len(STOPS))
    return [styled(f"{'' if number else label:<{cells}}", Style.DIM) + row for number, row in enumerate(rows)]


def swap_lines(swap: Swap, width: int, log_lines: int = 9) -> list[Line]:
    """Format an ended swap: its cause, its stages, where the start spent its time, and its failure."""
    cause = styled(words.CAUSES[swap.cause] + (f", {swap.waiting} waited for it" if swap.waiting else ""))
    *first, create, load, warm = phases_of(swap)
    stages = [join((_stage(swap, phase) for phase in row), styled("  ")) for row in (first, (create, load, warm))]
    start: list[Line] = []
    if swap.start:
        told = ", ".join(f"{step.name} {duration(step.s)}" for step in swap.start.stages)
        start = [*wrap(f"start: {told}", width), *wrap("; ".join(start_facts(swap.start)), width, Style.DIM)]
    failure = failure_rows(swap.failure, width, log_lines) if swap.failure else []
    return [cause, *stages, *start, *failure]


def kill_key(kill: GuardKill) -> str:
    return f"kill {kill.profile} {kill.at}"


def kill_lines(kill: GuardKill, width: int) -> list[Line]:
    return wrap(f"✗ the memory guard killed {kill.profile}: {kill.reason}", width, Style.BAD)


def _stage(swap: Swap, phase: SwapPhase) -> Line:
    took = swap.stage_s.get(phase)
    return styled(f"{phase} ", Style.DIM) + styled(duration(took), Style.PLAIN if took is not None else Style.DIM)


def errors_of(found: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [one for one in found.get("findings", ()) if one["level"] == "error"]


def warnings_of(found: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [one for one in found.get("findings", ()) if one["level"] != "error"]


def finding_lines(found: Mapping[str, Any], draft: str, name: str, width: int) -> list[Line]:
    """Format findings, errors first: place, message, hint. `draft` is shown as `name`."""
    lines: list[Line] = []
    for one in (*errors_of(found), *warnings_of(found)):
        bad = one["level"] == "error"
        place = f"{one['file']}:{one['line']}".replace(draft, name)
        key = f"{one['key']}: " if one["key"] else ""
        lines += wrap(f"{'✗' if bad else '⚠'} {place}: {key}{one['message']}", width, Style.BAD if bad else Style.WARN)
        lines += [styled("  ") + row for row in wrap(one["hint"] or "", width - 2)]
    return lines


def command_lines(told: Mapping[str, Any], width: int) -> list[Line]:
    """Format the command of a dry run, one option a row, each node's under its name."""
    lines: list[Line] = []
    nodes = told.get("nodes") or [{"node": "", "argv": told["argv"]}]
    for one in nodes:
        if one["node"]:
            lines += [EMPTY, styled(f"on {one['node']}", Style.STRONG)]
        for number, row in enumerate(_rows(one["argv"])):
            lines += [styled("  " if number else "") + line for line in wrap(row, width - 2)]
    return lines


def _rows(argv: list[str]) -> list[str]:
    rows: list[str] = []
    for word in argv:
        takes = rows and rows[-1].startswith("-") and " " not in rows[-1] and "=" not in rows[-1]
        if rows and not word.startswith("-") and (takes or len(rows) == 1):
            rows[-1] += f" {word}"
        else:
            rows.append(word)
    return rows


def copy_question(name: str, own: Path, width: int) -> list[Line]:
    text = f"{name} ships with sparkdash; its file is replaced by the next version. A copy in {own} wins over it."
    return wrap(text, width)


def weights_text(told: Mapping[str, Any]) -> str:
    """Format one step of a download: "weights 43 %, 26 of 61 GiB, 98 MiB/s, 6m02s left"."""
    came, total = told["came_bytes"], told["total_bytes"]
    parts = [f"weights {percent(came / total if total else 1.0)}", f"{size(came)} of {size(total)}"]
    if told.get("bytes_per_s"):
        parts.append(f"{size(int(told['bytes_per_s']))}/s")
    if told.get("eta_s") is not None:
        parts.append(f"{duration(told['eta_s'])} left")
    return ", ".join(parts)


STYLES = {
    Status.FAIL: Style.BAD,
    Status.WARN: Style.WARN,
    Status.UNKNOWN: Style.DIM,
    Status.NOTE: Style.PLAIN,
    Status.OK: Style.GOOD,
}
INDENT = 9


def diagnosis_lines(diagnosis: Diagnosis, width: int) -> list[Line]:
    """Format the counts, every finding that is not ok with evidence and fix, then the names of passed checks."""
    out = [counts(diagnosis.findings)]
    out += [
        row for one in diagnosis.worst_first if one.status is not Status.OK for row in (EMPTY, *finding(one, width))
    ]
    if well := ", ".join(one.name for one in diagnosis.findings if one.status is Status.OK):
        out += [EMPTY, *_block(Status.OK, wrap(well, width - INDENT, Style.DIM))]
    return out


def finding(one: Finding, width: int) -> list[Line]:
    """Format a finding with its fix, and a check that passed in one row."""
    if one.status is Status.OK:
        told = styled(f"{one.name}  ") + styled(one.evidence, Style.DIM)
        return _block(one.status, [clip(told, width - INDENT)])
    told = styled(f"{one.name}  ", Style.STRONG) + styled(one.evidence)
    fix = wrap(f"→ {one.fix}", width - INDENT, Style.STRONG) if one.fix else []
    return _block(one.status, [*wrap_line(told, width - INDENT), *fix])


def counts(found: Iterable[Finding]) -> Line:
    counts = Counter(one.status for one in found)
    tallies = [styled(f"{counts[status]} {status}", style) for status, style in STYLES.items() if counts[status]]
    return join(tallies, styled("  "))


def _block(status: Status, rows: list[Line]) -> list[Line]:
    first, *rest = rows
    return [pad(styled(status, STYLES[status]), INDENT) + first, *(styled(" " * INDENT) + row for row in rest)]
