"""Table of a clock sweep: what each clock loses and saves, and which one to take.

Owns: its columns and words. Must not know: how the clock is chosen.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterator

from sparkdash.bench.judge.clock_choice import Change, ClockChoice, ClockFigure, ClockVerdict
from sparkdash.bench.report.arm_tables import TableSource
from sparkdash.bench.report.blocks import (
    DASH,
    Block,
    Grid,
    Heading,
    TableCell,
    TextBlock,
    Tone,
    format_change,
    format_percent,
)

HEAD = ("MHz", "Decode", "Energy per token", "Tokens/Wh", "W", "Lowest", "°C", "")
TOGETHER = (
    "All cells together; lowest clock and highest temperature under load. All bounds hold together in 95 % of runs. "
    "A clock is taken if its loss is shown to be within the stated one and its saving is shown; of several, the one "
    "with the most tokens per Wh."
)


def clock_table(source: TableSource) -> Iterator[Block]:
    """Recommendation and table of a clock sweep; nothing without one."""
    choice = source.report.clock
    if choice is None:
        return
    yield Heading(2, "Recommended clock")
    yield TextBlock((_sentence(choice),))
    yield Grid(head=HEAD, rows=tuple(_row(one, choice.most_loss) for one in choice.figures), right=True)
    yield TextBlock((TOGETHER,), Tone.DIM)


def _sentence(choice: ClockChoice) -> str:
    loss = format_percent(choice.most_loss, 0 if round(100 * choice.most_loss, 6).is_integer() else 1)
    taken = next((one for one in choice.figures if one.arm == choice.taken), None)
    if taken is None:
        return "No clock is recommended: the power was not read, or there are too few launches for an interval."
    if taken.verdict is ClockVerdict.BASELINE:
        return (
            f"Keep {taken.arm}: no lower clock is shown to save energy and to lose at most {loss} of the decode rate."
        )
    return (
        f"Take {taken.arm}: {_change(taken.energy)} energy per token at {_change(taken.decode)} decode rate "
        f"(stated loss: at most {loss})."
    )


def _row(one: ClockFigure, most_loss: float) -> tuple[TableCell, ...]:
    base = one.verdict is ClockVerdict.BASELINE
    texts = (
        "free" if one.cap_mhz is None else str(one.cap_mhz),
        "baseline" if base else _change(one.decode),
        "baseline" if base else _change(one.energy),
        _number(one.tokens_per_wh),
        _number(one.power_w, 1),
        _number(one.clock_mhz),
        _number(one.temperature_c),
    )
    tone = Tone.BETTER if one.verdict is ClockVerdict.TAKEN else Tone.PLAIN
    return (*map(TableCell, texts), TableCell(_verdict_text(one.verdict, most_loss), tone))


def _verdict_text(verdict: ClockVerdict, most_loss: float) -> str:
    loss = f"> {100 * most_loss:g} %"
    return {
        ClockVerdict.TAKEN: "take this",
        ClockVerdict.BASELINE: "",
        ClockVerdict.LOSES: f"loses {loss}",
        ClockVerdict.MAY_LOSE: f"may lose {loss}",
        ClockVerdict.SAVES_NOTHING: "no saving shown",
        ClockVerdict.SAVES_LESS: "another one saves more",
        ClockVerdict.UNKNOWN: "not known",
    }[verdict]


def _change(change: Change | None) -> str:
    """Format a change with its bounds; in brackets without them."""
    if change is None:
        return DASH
    if change.low is None or change.high is None:
        return f"({format_change(change.delta)})"
    return f"{format_change(change.delta)} [{100 * change.low:.1f}, {100 * change.high:.1f}]"


def _number(figure: float | None, digits: int = 0) -> str:
    return DASH if figure is None else f"{figure:.{digits}f}"
