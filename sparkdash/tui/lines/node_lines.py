"""Lines about nodes: each box's memory in one frame, its GPU, and the link between the boxes.

Rule: figures of a silent node are drawn dim beside their age and the reason, never as if they were of now. Pure.
"""

from collections.abc import Callable
from typing import NamedTuple

from sparkdash.domain.metric import Gpu, Memory
from sparkdash.domain.node import LOCAL, NodeState, NodeStatus
from sparkdash.domain.phrases import is_silent, link_between, link_errors, link_text, used_link
from sparkdash.tui.lines.words import age
from sparkdash.tui.mirror import View
from sparkdash.tui.text import (
    EMPTY,
    EdgeText,
    Line,
    Style,
    clip,
    dimmed,
    divider,
    fitted_edge,
    frame,
    join,
    plain_text,
    styled,
    wrap,
)
from sparkdash.units import DASH, counted, gib, number, percent

RULE = styled(" ── ", Style.FAINT)
STATUS: dict[NodeStatus, tuple[str, Style]] = {
    NodeStatus.CONNECTING: ("◌ connecting", Style.WARN),
    NodeStatus.REACHABLE: ("● reachable", Style.GOOD),
    NodeStatus.UNREACHABLE: ("✗ unreachable", Style.BAD),
    NodeStatus.REFUSED: ("✗ refused", Style.BAD),
}


class BarRows(NamedTuple):
    """How the memory of one box is drawn, for a width in cells: its bar, and the legend below."""

    bar: Callable[[Memory, int], Line]
    legend: Callable[[Memory, int], Line]


def node_name(name: str, view: View) -> Line:
    """Name a box; another box of the demo says that it is simulated, in three letters: the card has the word."""
    host = view.snapshot.daemon.host if view.snapshot else DASH
    if name == LOCAL:
        return styled(host, Style.PLAIN)
    return styled(name, Style.PLAIN) + (styled(" SIM", Style.WARN) if view.simulated else EMPTY)


def hosts_line(view: View) -> Line:
    host = styled(view.snapshot.daemon.host if view.snapshot else DASH, Style.DIM)
    others = [_marked(state) for _, state in sorted(view.nodes.items())]
    return join([host, *others], styled(" + ", Style.DIM))


def _marked(state: NodeState) -> Line:
    if not is_silent(state):
        return styled(state.name, Style.DIM)
    glyph, style = STATUS[state.status]
    return styled(f"{glyph[0]} {state.name}", style)


def memory_of_boxes(view: View, width: int, *, first: list[Line], rows: BarRows, gpus: bool) -> list[Line]:
    """Frame the memory of every box, this one first, and the link below.

    `first`: what stands beside this box's name; `gpus`: whether the edges have the GPUs' figures.
    """
    sample = view.sample
    here = [node_name(LOCAL, view), *first]
    gpu = _short_gpu(sample.gpu, stuck=sample.low_power) if gpus and sample and sample.gpu else []
    memory = sample.memory if sample else None
    body = _box_rows(memory, width, rows, old=view.sample_age_s is not None, reason=None, short=gpus)
    parts = [(_edge(here, gpu, _left(memory), width), body)]
    for name, state in sorted(view.nodes.items()):
        parts.append(_node(name, state, view, width, rows, gpus=gpus))
    top, *others = parts
    lines = frame(top[1], width, top[0], EdgeText(clip(link_line(view), width - 8)))
    foot = lines.pop()
    for head, inner in others:
        lines += [divider(width, head), *frame(inner, width)[1:-1]]
    return [*lines, foot]


def _node(
    name: str, state: NodeState, view: View, width: int, rows: BarRows, *, gpus: bool
) -> tuple[EdgeText, list[Line]]:
    found = view.sample.nodes.get(name) if view.sample else None
    memory, gpu = (found.memory, found.gpu) if found else (None, None)
    old = view.node_age_s(name)
    silent = is_silent(state)
    owed = styled(f"! {counted(len(state.owed), 'engine')} to end there", Style.WARN) if state.owed else EMPTY
    changed = styled(f"! {state.differs}", Style.WARN) if state.differs else EMPTY
    head = [node_name(name, view), status_line(state, view), changed, owed, _unguarded(name, state, view)]
    if old is not None and not silent:
        head.append(styled(f"{age(old)} old", Style.WARN))
    if silent and memory and found:
        far = styled(f"{gib(memory.available)} available {age(max(view.now - found.at, 0.0))} ago", Style.DIM)
    else:
        left = _left(memory)
        far = left if old is None else dimmed(left)
    reason = (state.reason or "No answer; sparkdash tries again.") if silent else None
    body = _box_rows(memory, width, rows, old=silent or old is not None, reason=reason, short=gpus)
    told = _short_gpu(gpu) if gpus and gpu and old is None and not silent else []
    return _edge(head, told, far, width), body


def _edge(parts: list[Line], gpu: list[Line], far: Line, width: int) -> EdgeText:
    """Lay out an edge; of the ways to tell the GPU's figures the first that fits is taken."""
    for told in gpu:
        found = fitted_edge([*parts, told], far, RULE, width)
        if plain_text(found.left).endswith(plain_text(told)):
            return found
    return fitted_edge(parts, far, RULE, width)


def _box_rows(
    memory: Memory | None, width: int, rows: BarRows, *, old: bool, reason: str | None, short: bool
) -> list[Line]:
    """Return the bar, and the legend or the reason of the silence below it."""
    room = width - 4
    told = wrap(f"→ {reason}", room, Style.WARN, limit=1 if short else 2) if reason else []
    if memory is None:
        return [styled("─" * room, Style.FAINT), *(told or [styled("memory of the box: -", Style.DIM)])]
    bar, legend = rows.bar(memory, room), rows.legend(memory, room)
    if old:
        bar, legend = dimmed(bar), dimmed(legend)
    return [bar, *(told or [legend])]


def _left(memory: Memory | None) -> Line:
    if memory is None:
        return styled("available -", Style.DIM)
    return available(memory)


def available(memory: Memory) -> Line:
    """Say how much memory is available, red within the reserve."""
    bad = memory.available <= memory.reserve
    left = styled(f"available {gib(memory.available)}", Style.BAD if bad else Style.PLAIN)
    return left + styled(" of ", Style.DIM) + styled(gib(memory.total), Style.PLAIN)


def status_line(state: NodeState, view: View) -> Line:
    """Say that a box is silent, and since when; empty for one that answers."""
    if not is_silent(state):
        return EMPTY
    word, style = STATUS[state.status]
    return styled(f"{word} {age(max(view.now - state.since, 0.0))}", style)


def _unguarded(name: str, state: NodeState, view: View) -> Line:
    """Tell that no memory guard runs beside the engines of a node, where this box has one."""
    snapshot = view.snapshot
    if snapshot is None or snapshot.guard is None or snapshot.guard.mode == "off" or state.guarded or is_silent(state):
        return EMPTY
    used = any(name in engine.nodes for engine in snapshot.engines.values())
    return styled("! no memory guard", Style.WARN) if used else EMPTY


def _short_gpu(gpu: Gpu, *, stuck: bool = False) -> list[Line]:
    """Format the GPU for an edge, in full and shorter: utilization, temperature, power."""
    if stuck:
        return [styled("✗ stuck low-power: unplug AC 60 s", Style.BAD), styled("✗ stuck low-power", Style.BAD)]
    busy, heat, power = percent(gpu.utilization), number(gpu.temperature_c, 0, " °C"), number(gpu.power_w, 0, " W")
    slowed = styled(" ⚠ slowed", Style.WARN) if gpu.throttle else EMPTY
    forms = ((busy, heat, power), (busy, power), (busy,))
    return [
        styled("gpu ", Style.DIM) + styled("  ".join(f"{each:>5}" for each in form), Style.PLAIN) + slowed
        for form in forms
    ]


def link_line(view: View) -> Line:
    link = link_between(view.sample.nodes, view.nodes) if view.sample else None
    if link is None:
        return EMPTY
    down = link.up is False
    told = styled("link ", Style.DIM) + styled(f"{link.name} ", Style.DIM)
    told += styled(f"{'✗ ' if down else ''}{link_text(link)}", Style.BAD if down else Style.PLAIN)
    if errors := link_errors(link):
        told += styled(f"  ⚠ {errors}", Style.WARN)
    if view.sample_age_s is not None:
        return dimmed(told)
    broken = [name for name, state in view.nodes.items() if not is_silent(state) and _is_down(name, state, view)]
    return told + styled(f"  ✗ down on {', '.join(broken)}", Style.BAD) if broken and not down else told


def _is_down(name: str, state: NodeState, view: View) -> bool:
    found = view.sample.nodes.get(name) if view.sample else None
    link = used_link(found.links, state.link) if found else None
    return link is not None and link.up is False
