"""The large figure of an engine: decode rate, its chart, and the lines that it is compared with.

Rule: a line is drawn only where it speaks of the same thing as the figure, one request; otherwise it stands as words.
Pure.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from sparkdash.domain.engine import Engine
from sparkdash.domain.metric import EngineSample, Metric
from sparkdash.domain.phrases import about
from sparkdash.domain.request import RequestState
from sparkdash.domain.state import Figures
from sparkdash.tui.history import STEP_S
from sparkdash.tui.lines import engine_figures
from sparkdash.tui.lines.chart_window import span_text
from sparkdash.tui.lines.charts import LevelLine, filled_chart, large
from sparkdash.tui.mirror import View
from sparkdash.tui.text import EMPTY, Line, Style, align_right, clip, dimmed, length, pad, styled, with_unit
from sparkdash.units import fitted, number

MOST_DIGITS = 4
"""Characters of the large figure beside a chart, without its point."""
FIGURE = 14
LABELS = 13
LEAST_CHART = 12
TALL = 3
MOST_ROOFLINE = 2.5
"""Roofline / highest other value up to which it is a line of the chart: a higher one would flatten the chart."""
HEADROOM = 1.08
ALONE = 1.15
"""Total rate / rate of each request up to which one request alone is behind it."""
_MEDIAN, _PUBLISHED, _ROOFLINE = "┄", "╌", "═"


class Speed(NamedTuple):
    """Decode rates of an engine in tokens per second, and how many requests are behind them."""

    total: float | None
    each: float | None
    decoding: int
    computing: int
    """Requests whose prompt is computed, or waits in the engine for that."""
    median: float | None
    published: float | None
    estimated: bool = False
    is_each_estimated: bool = False
    roofline: float | None = None
    """Ceiling of one request by the memory's bandwidth and the checkpoint's bytes."""
    is_each: bool = False
    queued: int = 0
    """Requests that wait inside the engine, by its own count."""

    @property
    def large(self) -> float | None:
        return self.each if self.is_each else self.total

    @property
    def comparable(self) -> bool:
        """Whether the large figure is the rate of one request, as the median and the published rate are.

        The total is over the last seconds: while a second request has just ended, it is still that of two.
        """
        if self.is_each:
            return True
        several = self.total is not None and self.each is not None and self.total > self.each * ALONE
        return self.decoding <= 1 and not several


def speed_of(view: View, engine: Engine) -> Speed:
    sample = view.engine_sample(engine.profile) or EngineSample(at=0.0)
    median, published = _compared_rates(view, engine.profile)
    mine = [one.state for one in view.requests if one.profile == engine.profile]
    decoding = mine.count(RequestState.STREAMING)
    total, (each, is_guess) = sample.figure(Metric.DECODE), sample.figure(Metric.DECODE_EACH)
    if each is None and total.value is not None and decoding:
        each = total.value / decoding
    return Speed(
        total=total.value,
        each=each if decoding else None,
        decoding=decoding,
        computing=mine.count(RequestState.PREFILL),
        median=median,
        published=published,
        is_each=view.hero.is_each,
        roofline=_roofline(view, engine, sample),
        estimated=total.estimated,
        is_each_estimated=is_guess,
        queued=round(sample.get(Metric.WAITING) or 0),
    )


def _compared_rates(view: View, profile: str) -> tuple[float | None, float | None]:
    if view.snapshot is None:
        return None, None
    found = view.snapshot.profile(profile)
    seen = view.snapshot.figures.get(profile) or Figures()
    return seen.decode_tok_s, found.published_decode_tok_s if found else None


def _roofline(view: View, engine: Engine, sample: EngineSample) -> float | None:
    """Return the most tokens per second of one request on a GB10; None while a part of that is unknown."""
    gpu = view.sample.gpu if view.sample else None
    profile = view.snapshot.profile(engine.profile) if view.snapshot else None
    if engine.most_steps_s is None or gpu is None or not gpu.unified or profile is None:
        return None
    length = sample.get(Metric.ACCEPTANCE_LENGTH) if profile.speculation else 1.0
    return None if length is None else engine.most_steps_s * length


def of_roofline(speed: Speed) -> Line:
    """Say how the figure compares with the ceiling; empty while that is unknown, and while several decode."""
    if not speed.each or not speed.roofline or not speed.comparable or speed.decoding != 1:
        return EMPTY
    return styled(f"{speed.each / speed.roofline * 100:.0f} % ", Style.PLAIN) + styled("of roofline", Style.DIM)


def figure_text(speed: Speed) -> str:
    """Format the large figure; "-" when unknown, "~" before an estimate."""
    total = speed.large
    guess = (speed.is_each_estimated if speed.is_each else speed.estimated) and total is not None
    digits = 1 if (total or 0.0) < 999.95 else 0
    text = fitted(total, MOST_DIGITS + 1 - guess, digits)
    if "." not in text:
        text = fitted(total, MOST_DIGITS)
    return f"{'~' if guess else ''}{text}"


def compared(speed: Speed) -> Line:
    """Say how the rate of one request compares with one other of the same kind; empty where none is.

    The total over the last seconds has those in which a lone request did not decode yet.
    """
    for name, other in (("published", speed.published), ("median", speed.median)):
        if speed.each and other and speed.comparable and (speed.decoding == 1 or speed.is_each):
            return styled(f"{speed.each / other * 100:.0f} % of {name}", Style.PLAIN)
    return EMPTY


def figure_block(speed: Speed, rows: int) -> list[Line]:
    name, count = "all " if speed.is_each else "each ", f" n={speed.decoding}"
    count += " now" * (speed.decoding == 1 and not speed.comparable)  # the total, over 2 s, is still of several
    rate = _other(speed)
    if len(name + rate + count) >= FIGURE:  # it would touch the chart
        rate = _other(speed, 0)
    each = styled(name, Style.DIM) + styled(rate, Style.PLAIN) + styled(count, Style.DIM)
    block = [*_drawn(speed, 3), _label(speed), each, of_roofline(speed)]
    if rows < TALL:
        block = [styled(figure_text(speed), Style.STRONG), _label(speed)]
    return [pad(line, FIGURE) for line in [*block, *[EMPTY] * rows][:rows]]


def percent_block(share: float | None) -> list[Line]:
    """Draw a percentage three rows high, with the sign beside its foot; a dash while it is unknown."""
    drawn = large("-" if share is None else f"{share * 100:.0f}")
    rows = [styled(row, Style.DIM if share is None else Style.STRONG) for row in drawn]
    return [*rows[:2], rows[2] + styled("" if share is None else " %", Style.DIM)]


def figure_facts(speed: Speed, rows: int) -> list[Line]:
    name = "total " if speed.is_each else "each "
    each = styled(name, Style.DIM) + with_unit(_other(speed), "tok/s")
    told = f"{speed.decoding} decode" + ("s" if speed.decoding == 1 else "")
    if speed.queued:  # most of those without a token, where there is a queue at all
        told += f", {speed.queued} queued"
    elif speed.computing:
        told += f", {speed.computing} prefill"
    return [each, styled(told, Style.PLAIN), compared(speed), of_roofline(speed), *[EMPTY] * rows][:rows]


def _label(speed: Speed) -> Line:
    words = ("each", "each, tok/s") if speed.is_each else ("decode", "decode tok/s")
    return styled(words[speed.large is not None], Style.DIM)


def _other(speed: Speed, digits: int = 1) -> str:
    """Format the rate that is not the large figure."""
    if speed.is_each:
        return about(number(speed.total, digits), estimated=speed.estimated)
    return about(number(speed.each, digits), estimated=speed.is_each_estimated)


def _drawn(speed: Speed, tall: int) -> list[Line]:
    style = Style.DIM if speed.large is None else Style.STRONG
    return [styled(row, style) for row in large(figure_text(speed), tall)]


def chart_rows(view: View, engine: Engine, speed: Speed, width: int, rows: int) -> list[Line]:
    """Draw the chart of the decode rate with its lines and their names, `width` cells wide."""
    labels = LABELS if width - LABELS >= LEAST_CHART else 0
    cells = max(width - labels, 0)
    if view.hero.window_s:
        values: Sequence[float | None] = view.hero.columns(engine.profile, cells * 2, view.now)
    else:
        values = view.history.last(engine.profile, view.hero.metric, cells * 2, view.now)
    lines = _lines(speed)
    top = max([value for value in values if value is not None] + [line.value for line, _ in lines], default=0.0)
    if speed.roofline and speed.comparable and speed.decoding <= 1 and speed.roofline <= top * MOST_ROOFLINE:
        lines.append((LevelLine(speed.roofline, _ROOFLINE), "roof"))
        top = max(top, speed.roofline)
    top *= HEADROOM
    drawn = filled_chart(values, rows, top, [line for line, _ in lines])
    if not labels:
        return drawn
    named = _names(speed, lines, rows)
    return [pad(row, cells) + pad(styled(" ") + named.get(place, EMPTY), labels) for place, row in enumerate(drawn)]


def _lines(speed: Speed) -> list[tuple[LevelLine, str]]:
    """Return the lines with their names: none while several requests decode together."""
    if not speed.comparable:
        return []
    pairs = ((speed.median, _MEDIAN, "median"), (speed.published, _PUBLISHED, "publ."))
    return [(LevelLine(value, glyph), name) for value, glyph, name in pairs if value is not None]


def _names(speed: Speed, lines: Sequence[tuple[LevelLine, str]], rows: int) -> dict[int, Line]:
    """Name what one request is compared with at the chart's foot, each behind its glyph while it is a line."""
    glyphs = {name: line.glyph for line, name in lines}
    compared_with = (("roof", speed.roofline), ("median", speed.median), ("publ.", speed.published))
    told = [
        styled(f"{glyphs.get(name, ' ')}{name:<6}", Style.DIM)
        + align_right(styled(fitted(value, 4, 1), Style.PLAIN if name in glyphs else Style.DIM), 5)
        for name, value in compared_with
        if value is not None
    ]
    if told and not speed.comparable:
        told.insert(0, styled(" at n=1", Style.DIM))
    return dict(enumerate(told[-rows:], max(rows - len(told), 0)))


@lru_cache
def axis(cells: int, window_s: float = 0.0) -> str:
    rule = [" "] * cells
    _put(rule, cells - 3, "now")
    if window_s:
        for quarter in range(1, 5):
            _put(rule, cells - round(cells * quarter / 4), f"-{span_text(window_s * quarter / 4)} ")
        return "".join(rule)
    per_minute = 60.0 / (2 * STEP_S)
    every = next((each for each in (1, 2, 5, 10, 20, 60) if each * per_minute >= 14), 60)
    minute = every
    while (at := cells - 1 - round(minute * per_minute)) >= 2:
        _put(rule, at - 2, f" -{minute}m ")
        minute += every
    return "".join(rule)


def _put(rule: list[str], at: int, text: str) -> None:
    if at >= 0 and at + len(text) <= len(rule):
        rule[at : at + len(text)] = text


ABOVE_FROM = (100, 13)
"""Width and rows from which the figure stands above its chart."""
FIVE_FROM = (100, 20)
"""Width and rows from which the figure is five rows high."""
LEAST_CHART_ROWS = 4
"""Rows of the figure with its label, and of the chart beside it."""


def large_figure(view: View, engine: Engine, width: int, rows: int) -> list[Line]:
    speed = speed_of(view, engine)
    above = width >= ABOVE_FROM[0] and rows >= ABOVE_FROM[1]
    shown = _above(view, engine, speed, width, rows) if above else _beside(view, engine, speed, width, rows)
    if view.engine_age_s(engine.profile) is None:
        return shown
    return [dimmed(line) for line in shown]


def _beside(view: View, engine: Engine, speed: Speed, width: int, rows: int) -> list[Line]:
    why = min(max(rows - LEAST_CHART_ROWS, 0), 4)
    tall = max(rows - why, 1)
    figure = figure_block(speed, tall)
    chart = chart_rows(view, engine, speed, width - FIGURE, tall)
    drawn = [clip(a + b, width) for a, b in zip(figure, chart, strict=True)]
    return [*drawn, *engine_figures.why_rows(view, engine, width, why)]


def _above(view: View, engine: Engine, speed: Speed, width: int, rows: int) -> list[Line]:
    five = 5 if width >= FIVE_FROM[0] and rows >= FIVE_FROM[1] else 3
    head = [*_drawn(speed, five), _label(speed)]
    cells = max(max(map(length, head)) + 3, 18)
    columns = engine_figures.why_columns(view, engine, width - cells, figure_facts(speed, len(head)))
    top = [pad(a, cells) + b for a, b in zip(head, columns, strict=True)]
    chart = chart_rows(view, engine, speed, width, rows - len(top) - 2)
    return [*top, EMPTY, *chart, styled(axis(width - LABELS, view.hero.window_s), Style.DIM)]
