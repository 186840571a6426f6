"""Lines of the figures that explain an engine's decode rate: prompt speed, acceptance, prefix hits, KV cache.

Rule: figures keep their column whatever their size.
"""

from sparkdash.domain.engine import Engine, Liveness, LivenessState, RepairStep
from sparkdash.domain.metric import EngineSample, Figure, Metric
from sparkdash.domain.phrases import about, repair_text, state_text, step_text
from sparkdash.domain.state import Figures
from sparkdash.tui.lines import words
from sparkdash.tui.lines.charts import meter, sparkline
from sparkdash.tui.mirror import View
from sparkdash.tui.text import EMPTY, Line, Style, align_right, clip, join, length, pad, styled, with_unit, wrap
from sparkdash.units import DASH, fitted, number, percent, tokens

FOLLOWS = {
    RepairStep.WATCH: "no repair; `sparkdash stop` ends it",
    RepairStep.EVIDENCE: "then its requests are cancelled",
    RepairStep.CANCEL: "if that does not help, the engine is restarted",
    RepairStep.END: "requests wait for it",
}


def stuck_rows(engine: Engine, view: View, width: int) -> list[Line]:
    """Format what was observed and what is done, wrapped at `width`; empty for a healthy engine."""
    live = _stuck(engine)
    if live is None:
        return []
    told = wrap(f"✗ {state_text(live, view.now)}: {live.why}", width, Style.BAD, limit=3)
    if live.step is not None:
        told += wrap(f"→ {step_text(live, view.now)}; {FOLLOWS[live.step]}", width, Style.STRONG, limit=2)
    return told


def stuck_step(engine: Engine, view: View) -> str:
    """Name the repair step in a few words; empty for a healthy engine."""
    live = _stuck(engine)
    return "" if live is None else step_text(live, view.now) or live.why


def repair_summary(profile: str, view: View) -> Line:
    time = view.snapshot.repairs.by_profile.get(profile) if view.snapshot else None
    return styled(repair_text(time), Style.DIM) if time else EMPTY


def _stuck(engine: Engine) -> Liveness | None:
    live = engine.liveness
    return live if live is not None and live.state is LivenessState.STUCK else None


LABEL, FIGURE, UNIT = 9, 6, 6
"""Widths of the columns in cells."""
TEN, HUNDRED = 9.995, 99.95
"""Seconds from which one decimal fewer is shown."""
BAR, LONG_BAR, LONG_FROM = 16, 24, 90
"""Cells of the bars of shares, and in cards of LONG_FROM cells and more."""
FACTS, SPEEDS, TWO = 24, 36, 60
"""Cells of the first two columns beside a large figure, and of the rest from which it is two columns."""
TIGHT_FACTS, TIGHT_SPEEDS, LEAST_LAST = 20, 29, 24
"""The same where less than LEAST_LAST would be left for the last column."""
POSITION, MORE = 7, 5
"""Cells of the share at a draft position without a bar, and of the count of positions without room."""
WIDE = 70
"""Width from which bars stand beside the figures."""
GAP = styled("  ")
_OWN_COUNT = styled("~ gateway's count", Style.DIM)
_GATEWAY_COUNTS = styled("No figures of the server: ~ is the gateway's own count.", Style.DIM)


def why_rows(view: View, engine: Engine, width: int, rows: int) -> list[Line]:
    """Format at most `rows` of the four rows, the most telling first to stay: prompt, accept, kv, prefix."""
    sample = view.engine_sample(engine.profile) or EngineSample(at=0.0)
    silent = not sample.values and sample.gateway is not None
    prompt = _prompt(view, engine, sample, width)
    accept = _GATEWAY_COUNTS if silent else _acceptance(view, engine, sample, width)
    prefix, kv = _prefix(sample, width), _kv_row(view, engine, sample, width)
    kept = {1: [prompt], 2: [prompt, kv], 3: [prompt, accept, kv]}.get(rows, [prompt, accept, prefix, kv])
    return [clip(line, width) for line in kept[: max(rows, 0)]]


def why_columns(view: View, engine: Engine, width: int, first: list[Line]) -> list[Line]:
    """Format the same figures in columns beside a large figure, right of the lines `first`, in as many rows."""
    sample = view.engine_sample(engine.profile) or EngineSample(at=0.0)
    seen = _seen(view, engine)
    tight = width - FACTS - SPEEDS < LEAST_LAST
    facts, speeds = (TIGHT_FACTS, TIGHT_SPEEDS) if tight else (FACTS, SPEEDS)
    speed = [
        _pair("prompt", prompt_speed(sample), "tok/s computing" if tight else "tok/s while computing"),
        _ttft(sample, seen),
        _pair("prefix", percent(sample.get(Metric.PREFIX_HIT)), "of prompt, 60 s"),
        _pair("lifetime", percent(sample.get(Metric.PREFIX_HIT_LIFETIME))),
    ]
    left = width - facts - speeds
    bar = min(max(left // 2 - 18, 6), 20) if left >= TWO else min(max(left - 10, 4), 20)
    used, length_ = sample.get(Metric.KV_USED), _length(sample, view, engine)
    share = _pair("kv", percent(used)) + styled(" ") + _bar(used, bar)
    if not sample.values and sample.gateway is not None:
        length_ = _OWN_COUNT
    accept = [*_position_bars(sample, 4, bar), length_]
    columns = [(first, facts), (speed, speeds)]
    if left >= TWO:
        columns += [(accept, left // 2), ([share, _kv(sample), _room(view, engine, sample)], left - left // 2)]
    else:
        held = [share, _kv(sample), _room(view, engine, sample)]
        if len(held) + len(accept) > len(first):
            held = [join([_pair("kv", percent(used)), held[1]], GAP), held[2]]
        if len(held) + len(accept) > len(first):
            accept = [_fitting(_position_bars(sample, 4, 0), left), length_]
        columns.append(([*held, *accept], left))
    rows: list[Line] = [EMPTY] * len(first)
    for lines, cells in columns:
        tall = [*lines, *[EMPTY] * len(first)][: len(first)]
        rows = [row + pad(line, cells) for row, line in zip(rows, tall, strict=True)]
    return rows


def _seen(view: View, engine: Engine) -> Figures:
    return (view.snapshot.figures.get(engine.profile) if view.snapshot else None) or Figures()


def prompt_speed(sample: EngineSample) -> str:
    """Return the prompt speed; "~" stands before one that only the gateway tells."""
    value, estimated = sample.figure(Metric.PROMPT_SPEED)
    return f"{'~' if estimated else ''}{fitted(value, FIGURE - estimated)}"


def _pair(name: str, value: str, unit: str = "") -> Line:
    return styled(f"{name} ", Style.DIM) + with_unit(value, unit)


def _head(label: str, figure: str, unit: str) -> Line:
    style = Style.DIM if figure == DASH else Style.PLAIN
    told = styled(f" {unit}", Style.DIM) if figure != DASH else EMPTY
    return pad(styled(label, Style.DIM), LABEL) + align_right(styled(figure, style), FIGURE) + pad(told, UNIT)


def _prompt(view: View, engine: Engine, sample: EngineSample, width: int) -> Line:
    seen = _seen(view, engine)
    bars = EMPTY
    if width >= WIDE:
        values = view.history.last(engine.profile, Metric.PROMPT_SPEED, _bar_cells(width), view.now)
        top = max((value for value in values if value is not None), default=0.0)
        bars = styled(sparkline(values, top)[0], Style.TRACE) + styled("   ")
    return _head("prompt", prompt_speed(sample), "tok/s") + GAP + bars + _ttft(sample, seen)


def _ttft(sample: EngineSample, seen: Figures) -> Line:
    half, late = sample.figure(Metric.TTFT_P50), sample.figure(Metric.TTFT_P95)
    first = Figure(seen.ttft_s) if half.value is None else half
    return join([_pair("ttft", _seconds(first)), EMPTY if late.value is None else _pair("p95", _seconds(late))], GAP)


def _seconds(figure: Figure) -> str:
    """Format seconds in six cells at most, seven with "~"."""
    decimals = sum((figure.value or 0.0) < limit for limit in (TEN, HUNDRED))
    return about(number(figure.value, decimals, " s"), estimated=figure.estimated)


def _share(label: str, value: float | None, width: int, remark: Line) -> Line:
    bar = EMPTY
    if width >= WIDE:
        bar = _bar(value, _bar_cells(width)) + styled("   ")
    return _head(label, percent(value).removesuffix(" %"), "%") + GAP + bar + remark


def _bar_cells(width: int) -> int:
    return LONG_BAR if width >= LONG_FROM else BAR


def _bar(value: float | None, cells: int) -> Line:
    if value is None:
        return styled("─" * cells, Style.FAINT)
    done, rest = meter(value, cells)
    return styled(done, Style.TRACE) + styled(rest, Style.FAINT)


def _prefix(sample: EngineSample, width: int) -> Line:
    lifetime = _pair("lifetime", percent(sample.get(Metric.PREFIX_HIT_LIFETIME)))
    value = sample.get(Metric.PREFIX_HIT)
    return _share(
        "prefix", value, width, styled("of prompt, 60 s  " if value is not None else "", Style.DIM) + lifetime
    )


def _kv_row(view: View, engine: Engine, sample: EngineSample, width: int) -> Line:
    held, room = _kv(sample), _room(view, engine, sample)
    row = _share("kv", sample.get(Metric.KV_USED), width, join([held, room], GAP))
    return row if length(row) <= width else _share("kv", sample.get(Metric.KV_USED), width, held)


def _kv(sample: EngineSample) -> Line:
    used, capacity = sample.get(Metric.KV_USED), sample.get(Metric.KV_CAPACITY)
    if capacity is None:
        return EMPTY
    held = None if used is None else used * capacity
    return styled(tokens(held), Style.PLAIN) + styled(" of ", Style.DIM) + styled(tokens(capacity), Style.PLAIN)


def _room(view: View, engine: Engine, sample: EngineSample) -> Line:
    """Say how many more requests of full context the KV cache can hold; empty while a part of that is unknown."""
    profile = view.snapshot.profile(engine.profile) if view.snapshot else None
    used, capacity = sample.get(Metric.KV_USED), sample.get(Metric.KV_CAPACITY)
    if used is None or capacity is None or profile is None or not profile.context:
        return EMPTY
    users = max(int(capacity * (1 - used) // profile.context), 0)
    context = words.context_length(profile.context)
    return styled("room for ", Style.DIM) + styled(f"{users} x {context}", Style.PLAIN)


def _acceptance(view: View, engine: Engine, sample: EngineSample, width: int) -> Line:
    profile = view.snapshot.profile(engine.profile) if view.snapshot else None
    method = profile.speculation if profile else None
    label = pad(styled("accept", Style.DIM), LABEL)
    if method is None and sample.acceptance_at is None:
        return label + align_right(styled(DASH, Style.DIM), FIGURE) + styled("        no speculation", Style.DIM)
    head = _head("accept", percent(sample.get(Metric.ACCEPTANCE)).removesuffix(" %"), "%") + GAP
    places = len(sample.acceptance_at or ())
    tail = join([_length(sample, view, engine), styled(method or "", Style.DIM)], GAP)
    room = width - length(head) - length(tail) - 2
    cells = min(max((room - 2) // places - 8, 0), 12) if places else 0
    bars = _position_bars(sample, places, cells)
    return clip(head + join([_fitting(bars, room), tail], GAP), width)


def _fitting(bars: list[Line], room: int) -> Line:
    """Join the shares of as many positions as have room, and count the others."""
    if length(join(bars, GAP)) <= room:
        return join(bars, GAP)
    kept = bars[: max((room - MORE) // (POSITION + 2), 0)]
    return join([*kept, styled(f"+{len(bars) - len(kept)}", Style.DIM)], GAP)


def _position_bars(sample: EngineSample, most: int, cells: int) -> list[Line]:
    """Format the acceptance of each draft position: its number, a bar of `cells`, the share."""
    lines = []
    for place, share in list(enumerate(sample.acceptance_at or (), 1))[:most]:
        bar = _bar(share, cells) + styled(" ") if cells > 2 else EMPTY
        lines.append(styled(f"{place} ", Style.DIM) + bar + styled(f"{share:.2f}", Style.PLAIN))
    return lines


def _length(sample: EngineSample, view: View, engine: Engine) -> Line:
    length_ = sample.get(Metric.ACCEPTANCE_LENGTH)
    if length_ is None:
        profile = view.snapshot.profile(engine.profile) if view.snapshot else None
        return EMPTY if profile and profile.speculation else styled("no speculation", Style.DIM)
    return styled(number(length_, 2), Style.PLAIN) + styled(" per step", Style.DIM)
