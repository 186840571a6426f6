"""Panel of the engines beside the one on the card and of the loads under way, one row each.

Rule: nothing is left out silently: what has no row is counted in the last one.
"""

from __future__ import annotations

from textual import events

from sparkdash.domain.engine import Engine, EngineState
from sparkdash.domain.metric import EngineSample, Metric
from sparkdash.domain.phrases import estimate_text, still_text, time_left, wait_text
from sparkdash.domain.swap import Swap
from sparkdash.tui.lines import engine_figures, words
from sparkdash.tui.lines.charts import meter
from sparkdash.tui.lines.swap_progress import goal
from sparkdash.tui.mirror import View
from sparkdash.tui.text import (
    EMPTY,
    Line,
    Style,
    align_right,
    clip,
    dimmed,
    join,
    justify,
    length,
    pad,
    shorten_apart,
    styled,
)
from sparkdash.tui.widgets.panel import EngineAsked, Panel
from sparkdash.units import gib, number, percent

METER, SHORT_METER = 16, 8
NAME = 16
ROOMY = 110
STATE = 17
GAP = styled("  ")
KEY_HINT = styled("f", Style.STRONG) + styled(" large", Style.DIM)


def others(view: View) -> list[Engine | Swap]:
    large = view.large_swap
    hidden = {swap.target for swap in view.swaps}
    if view.engine and (large is None or view.engine.profile in (large.target, *large.evict)):
        hidden.add(view.engine.profile)
    beside = [one for one in (view.snapshot.engines.values() if view.snapshot else ()) if one.profile not in hidden]
    beside.sort(key=lambda one: one.state is EngineState.FAILED)
    return [*(swap for swap in view.swaps if swap is not large), *beside]


class Residents(Panel):
    """Rows of the other engines and loads; as many as the page gives, the last one counts the rest."""

    def draw(self, view: View, width: int, height: int) -> list[Line]:
        found = others(view)
        longest = max((len(_name(one)) for one in found), default=0)
        cells = min(max(longest, NAME), max(width // 3, NAME))
        rows = [_row(one, view, width, cells) for one in found]
        if height and len(rows) > height:
            kept = max(height - 1, 0)
            names = [shorten_apart(_name(one), cells, view.profile_names) for one in found[kept:]]
            rows = [*rows[:kept], clip(_counted(names, width), width)]
        return rows

    def on_click(self, event: events.Click) -> None:
        found = others(self.services.view)
        if event.y < len(found):
            self.post_message(EngineAsked(_name(found[event.y])))


def _counted(names: list[str], width: int) -> Line:
    """Count the engines without a row, and name as many as have room whole: a cut name may be any of them."""
    head = styled(f" + {len(names)} more: ", Style.DIM)
    for kept in range(len(names), 0, -1):
        line = head + styled(", ".join(names[:kept])) + (styled(", …", Style.DIM) if kept < len(names) else EMPTY)
        if length(line) <= width:
            return line
    return head + styled(names[0])


def _name(one: Engine | Swap) -> str:
    return one.profile if isinstance(one, Engine) else goal(one)


def _row(one: Engine | Swap, view: View, width: int, cells: int) -> Line:
    name = pad(styled(shorten_apart(_name(one), cells, view.profile_names)), cells)
    row = _engine(one, view, name, width) if isinstance(one, Engine) else _load(one, view, name, width)
    return justify(row, KEY_HINT + styled(" "), width) if length(row) + 12 < width else clip(row, width)


def _engine(engine: Engine, view: View, name: Line, width: int) -> Line:
    state = words.engine_state(engine, view)
    head = styled(" ") + name + GAP + pad(state, STATE) + styled(" ")
    if engine.state is EngineState.FAILED and engine.failure:
        return head + styled(engine.failure.message, Style.BAD)
    if step := engine_figures.stuck_step(engine, view):
        return head + styled(step, Style.BAD)
    told = _figures(engine, view, width - length(head))
    return head + (told if view.engine_age_s(engine.profile) is None else dimmed(told))


def _figures(engine: Engine, view: View, width: int) -> Line:
    sample = view.engine_sample(engine.profile) or EngineSample(at=0.0)
    value, by_gateway = sample.figure(Metric.DECODE)
    rate = styled(f"{'~' if by_gateway else ''}{number(value, 1)}", _style(view, engine, Metric.DECODE))
    rate += styled(" tok/s", Style.DIM)
    used = styled(percent(sample.get(Metric.KV_USED)), _style(view, engine, Metric.KV_USED))
    kv = styled("kv ", Style.DIM) + align_right(used, 5)
    memory = view.sample.memory if view.sample else None
    held = memory.engines.get(engine.profile) if memory else None
    size = align_right(styled(gib(held), Style.PLAIN), 9) if held is not None else EMPTY
    boxes = view.boxes(engine.nodes)
    where = styled(f"on {boxes}", Style.DIM) if boxes else EMPTY
    parts = [align_right(rate, 12), kv, size, where]
    while len(parts) > 1 and length(join(parts, GAP)) > width:
        parts.pop(1)
    return join(parts, GAP)


def _style(view: View, engine: Engine, metric: Metric) -> Style:
    return Style.BAD if view.is_alerting(engine.profile, metric.value) else Style.PLAIN


def _load(swap: Swap, view: View, name: Line, width: int) -> Line:
    short = width < ROOMY
    still = swap.still_since is not None
    mark = styled("◌ stalled" if still else f"◌ {swap.phase}", Style.WARN if still else Style.PLAIN)
    since = styled(f" {words.age(view.link_at - swap.started_at)}", Style.PLAIN)
    head = styled(" ") + name + GAP + pad(mark + since, STATE) + styled(" ")
    cells = SHORT_METER if short else METER
    if swap.fraction is None:
        bar, share = styled("─" * cells, Style.FAINT), styled("    - ", Style.DIM)
    else:
        done, rest = meter(swap.fraction, cells)
        bar = styled(done, Style.WARN if still else Style.TRACE) + styled(rest, Style.FAINT)
        share = styled(f" {swap.fraction * 100:3.0f} %", Style.PLAIN)
    left = _outlook(swap, view, short=short)
    whole = head + join([bar + share, left], GAP)
    return whole if length(whole) <= width else head + join([share, left], GAP)


def _outlook(swap: Swap, view: View, *, short: bool) -> Line:
    if swap.still_since is not None:
        return styled(still_text(swap, view.now), Style.WARN)
    if waits := wait_text(swap, view.now):
        return styled(waits, Style.PLAIN)
    rest = time_left(swap, view.now)
    if rest is None:
        return styled("no estimate", Style.DIM)
    if short and rest.s:
        return styled(f"~{words.age(rest.s)} left", Style.PLAIN)
    return styled(estimate_text(swap, view.now), Style.PLAIN)
