"""The engine card: the large figure of an engine with its chart, the swap under way, the failure, or advice."""

from typing import NamedTuple

from textual import events

from sparkdash.domain import phrases
from sparkdash.domain.engine import Engine, EngineState
from sparkdash.domain.metric import EngineSample, Metric
from sparkdash.domain.state import Figures
from sparkdash.domain.swap import Swap
from sparkdash.tui.layout import is_compact
from sparkdash.tui.lines import engine_figures, words
from sparkdash.tui.lines.charts import meter
from sparkdash.tui.lines.dialog_texts import failure_rows
from sparkdash.tui.lines.first_run import first_run_rows, no_profile_rows
from sparkdash.tui.lines.hero import large_figure, percent_block
from sparkdash.tui.lines.swap_progress import goal, swap_rows, swap_title
from sparkdash.tui.mirror import ConnectionState, View
from sparkdash.tui.text import (
    EMPTY,
    EdgeText,
    Line,
    Style,
    align_right,
    clip,
    dimmed,
    frame,
    join,
    justify,
    key_hint,
    key_hints,
    length,
    pad,
    shorten_apart,
    styled,
    with_unit,
    wrap,
)
from sparkdash.tui.widgets.panel import EngineAsked, Panel
from sparkdash.units import duration, gib, number, percent

METER, SHORT_METER = 16, 8
NAME = 16
FULL_FROM = 110
STATE = 17
GAP = styled("  ")
TROUBLE_KEYS = key_hints(("x", "stop"), ("n", "what to do"))
KEYS = key_hints(("f", "large"), ("e", "each"), ("[ ]", "window"), ("h", "history"))
KEY_HINT = key_hint("f", "large")
STALL_KEYS = key_hints(("x", "cancel"), ("K", "keep"))


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
    if isinstance(one, Swap) and one.still_since is not None:
        return justify(clip(row, width - length(STALL_KEYS) - 3), STALL_KEYS + styled(" "), width)
    return justify(row, KEY_HINT + styled(" "), width) if length(row) + 12 < width else clip(row, width)


def _engine(engine: Engine, view: View, name: Line, width: int) -> Line:
    state = words.engine_state(engine, view)
    head = styled(" ") + name + GAP + pad(state, STATE) + styled(" ")
    if engine.state is EngineState.FAILED and engine.failure:
        return head + styled(engine.failure.message, Style.BAD)
    if step := engine_figures.stuck_step(engine, view):
        return head + styled(step, Style.BAD)
    age = view.engine_age_s(engine.profile)
    if age is None:
        return head + _figures(engine, view, width - length(head))
    old = styled(f"  {words.age(age)} old", Style.WARN)
    return head + dimmed(_figures(engine, view, width - length(head) - length(old))) + old


def _figures(engine: Engine, view: View, width: int) -> Line:
    sample = view.engine_sample(engine.profile) or EngineSample(at=0.0)
    value, estimated = sample.figure(Metric.DECODE)
    rate = with_unit(phrases.about(number(value, 1), estimated=estimated), "tok/s", Style.PLAIN)
    rate += styled(" " * len(" tok/s")) if value is None else EMPTY  # figures of rows stand below each other
    used = styled(percent(sample.get(Metric.KV_USED)), Style.PLAIN)
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


def _load(swap: Swap, view: View, name: Line, width: int) -> Line:
    short = width < FULL_FROM
    still = swap.still_since is not None
    mark = styled("◌ stalled" if still else f"◌ {swap.phase}", Style.WARN if still else Style.PLAIN)
    since = styled(f" {words.age(view.known_at - swap.started_at)}", Style.PLAIN)
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
        text = phrases.still_text(swap, view.now)
        return styled(text.partition(", ")[2] or text if short else text, Style.WARN)
    if waits := phrases.wait_text(swap, view.now):
        return styled(waits, Style.PLAIN)
    rest = phrases.time_left(swap, view.now)
    if rest is None:
        return styled("no estimate", Style.DIM)
    if short and rest.s:
        return styled(f"~{words.age(rest.s)} left", Style.PLAIN)
    return styled(phrases.estimate_text(swap, view.now), Style.PLAIN)


DOTS = styled(" · ", Style.FAINT)
RULE = styled(" ── ", Style.FAINT)
SIMULATED = "SIMULATED"


LEAST_ROWS = 8
ROOMY = 9
PERCENT, WITH_PERCENT = 16, 96
"""Cells of a swap's large percentage, and cells of a card from which it has one."""
EDGES = 5
"""Cells of a frame's edge, beyond the body's width, that corners, spaces and rules take."""


class Face(NamedTuple):
    """Content of the card: lines, title, marks at the title's far end, and the engine of the lower edge."""

    rows: list[Line]
    title: Line
    marks: list[Line]
    engine: Engine | None = None


def face(view: View, width: int, rows_for: int) -> Face:
    """Choose the card's content, its lines `width` cells wide, for `rows_for` rows."""
    if view.snapshot is None:
        refused = view.refusal is not None and view.refusal.code == "daemon_version"
        title = "a daemon of another version" if refused else "no daemon yet"
        return Face(_no_daemon(view, width), styled(title), [])
    if swap := view.large_swap:
        return _swap_face(view, swap, width, rows_for)
    if view.engine is None:
        offers = first_run_rows if view.snapshot.profiles else no_profile_rows
        return Face(offers(view, width), styled("no engine runs"), _marks(view))
    return _engine_face(view, view.engine, width, rows_for)


def _swap_face(view: View, swap: Swap, width: int, rows_for: int) -> Face:
    figure = percent_block(swap.fraction) if width >= WITH_PERCENT and rows_for >= ROOMY else []
    rows = swap_rows(view, swap, width - (PERCENT if figure else 0))
    rows = rows if rows_for < ROOMY else [line for row in rows for line in (row, EMPTY)]
    beside = [one for one in view.swaps if one is not swap]
    title = swap_title(swap, beside, _target_boxes(view, swap))
    return Face(_beside(figure, rows), title, _marks(view), None if view.engine in others(view) else view.engine)


def _engine_face(view: View, engine: Engine, width: int, rows_for: int) -> Face:
    if engine.state is EngineState.FAILED and engine.failure:
        return Face(failure_rows(engine.failure, width), _title(view, engine, width), _marks(view), engine)
    rows = large_figure(view, engine, width, rows_for)
    if told := engine_figures.stuck_rows(engine, view, width):
        rows = [*told, *map(dimmed, rows)][: max(len(rows), len(told))]  # panels below keep their place
    return Face(rows, _title(view, engine, width), _marks(view, engine), engine)


def _target_boxes(view: View, swap: Swap) -> str:
    """Name the boxes that the swap's target loads on, once that is decided; empty with this box alone."""
    target = view.snapshot.engines.get(swap.target or "") if view.snapshot else None
    return view.boxes(target.nodes) if target else ""


def _title(view: View, engine: Engine, width: int) -> Line:
    profile = view.snapshot.profile(engine.profile) if view.snapshot else None
    context = styled(words.context_length(profile.context), Style.PLAIN) if profile and profile.context else EMPTY
    boxes = view.boxes(engine.nodes)
    where = styled(f"on {boxes}", Style.PLAIN) if boxes else EMPTY
    parts = [part for part in (styled(words.engine_name(profile, engine), Style.PLAIN), context, where) if part]
    name = styled(shorten_apart(engine.profile, max(width - EDGES, 1), view.profile_names), Style.STRONG)
    while parts and length(join([name, join(parts, DOTS)], RULE)) > width - EDGES:
        parts.pop()
    return join([name, join(parts, DOTS)], RULE)


def _head(title: Line, marks: list[Line], width: int) -> EdgeText:
    """Lay out the upper edge. The last marks give way to the title; the title to the first, so SIMULATED shows."""
    room, shown = width - EDGES, [*marks]
    while len(shown) > 1 and length(title) + length(join(filter(None, shown), RULE)) > room:
        shown.pop()
    far = join(filter(None, shown), RULE)
    return EdgeText(clip(title, room - length(far)), far)


def _marks(view: View, engine: Engine | None = None) -> list[Line]:
    """Return the marks: SIMULATED, the age of stale figures, the best rate."""
    marks = [styled(SIMULATED, Style.WARN) if view.simulated or (engine is not None and engine.simulated) else EMPTY]
    if engine is None or view.snapshot is None:
        return marks
    stale = view.engine_age_s(engine.profile)
    best = view.snapshot.figures.get(engine.profile, Figures()).best
    marks.append(styled(f"{words.age(stale)} old", Style.WARN) if stale is not None else EMPTY)
    told = [
        of_engine(engine, view.snapshot)
        for of_engine in (phrases.slow_box, phrases.without_rdma, phrases.degraded_text)
    ]
    marks += [styled(each, Style.WARN) for each in told if each]
    return [*marks, styled(f"best {best:.1f} each", Style.PLAIN) if best else EMPTY, KEYS]


def _foot(engine: Engine | None, view: View) -> EdgeText:
    if engine is None:
        return EdgeText(EMPTY, _url(view))
    adopted = styled("adopted", Style.DIM) if engine.adopted else EMPTY
    loaded = styled(f"loaded in {duration(engine.load_s)}", Style.DIM) if engine.load_s is not None else adopted
    if step := phrases.step_share(engine, view.engine_sample(engine.profile)):  # in its place: the edge is short
        loaded = styled("link ", Style.DIM) + styled(step, Style.PLAIN) + styled(" of a step", Style.DIM)
        loaded = loaded if view.engine_age_s(engine.profile) is None else dimmed(loaded)
    name = styled(f"{engine.profile} ", Style.STRONG) if view.large_swap else EMPTY
    repaired = engine_figures.repair_summary(engine.profile, view)
    far = TROUBLE_KEYS if engine.is_stuck or engine.state is EngineState.FAILED else _url(view)
    return EdgeText(join([name + words.engine_state(engine, view), loaded, repaired], DOTS), far)


def _url(view: View) -> Line:
    return styled(view.snapshot.daemon.url, Style.DIM) if view.snapshot else EMPTY


def _no_daemon(view: View, width: int) -> list[Line]:
    if view.refusal:
        hint = wrap(f"→ {view.refusal.hint}", width, Style.STRONG) if view.refusal.hint else []
        return [*wrap(view.refusal.message, width, Style.BAD), *hint]
    if view.connection is ConnectionState.CONNECTING:
        waited = view.here - view.connection_since
        rows = [styled(f"Looking for the daemon at {view.address} ({words.age(waited)})")]
        if waited > 2:
            rows.append(styled("Start it with `sparkdash serve`; this screen finds it.", Style.STRONG))
        return rows
    return [styled("The daemon has not sent its state yet.", Style.DIM)]


def _beside(figure: list[Line], rows: list[Line]) -> list[Line]:
    """Put the rows of a swap right of its large percentage."""
    if not figure:
        return rows
    tall = max(len(figure), len(rows))
    left, right = [*figure, *[EMPTY] * tall][:tall], [*rows, *[EMPTY] * tall][:tall]
    return [pad(one, PERCENT) + other for one, other in zip(left, right, strict=True)]


class EngineCard(Panel):
    """Framed card of the height that the page gives it; without a frame in a low terminal."""

    def draw(self, view: View, width: int, height: int) -> list[Line]:
        height = height or LEAST_ROWS
        if is_compact(self.app.size.height):
            shown = face(view, width - 1, height)
            return [styled(" ") + row for row in [*shown.rows, *[EMPTY] * height][:height]]
        shown = face(view, width - 4, max(height - 2, 0))
        head = _head(shown.title, shown.marks, width - 4)
        return frame(shown.rows, width, head, _foot(shown.engine, view), height=height)
