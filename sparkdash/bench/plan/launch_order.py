"""Order of the launches of a run, and of the cells in a launch.

Owns: the orders, and why a drift of the box rarely looks like a difference between arms. Must not know: what is
measured.
Rule 1: an order depends on its arguments alone, on every machine and in every version of Python: ranks by SHA-256, not
by `random`.
Rule 2: the order of each run is drawn. Every fixed order has a drift of the same rhythm (A B A B A B: three waves a
session), and a box with that rhythm would give the same false claim again and again.
Pure.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from sparkdash.bench.judge.arm_comparison import fit_cell
from sparkdash.bench.run import LaunchSlot, Mode, PlannedCell

HOT_SHARE = 4
"""Every fourth cell counts as hot; hot cells are kept apart."""


PASSES = {Mode.SCREEN: 1, Mode.STANDARD: 3, Mode.CAREFUL: 4}
"""Launches of each arm."""

PAIR_ORDERS: Mapping[Mode, Mapping[str, int]] = {
    Mode.STANDARD: {"AABBAB": 9, "ABBABA": 6, "ABBBAA": 4, "ABBAAB": 1},
    Mode.CAREFUL: {"ABABBAAB": 4, "AABBBABA": 3, "ABABAABB": 3},
}
"""Orders of two arms and how often each is drawn, forwards or backwards, with A or B first. The shares are those at
which drifts are claimed in some 5 % of tables at most, with the most power (tests/perf/independent_rates.py).
"""

TRIES = 10
"""Shuffles of three or more arms, of which the one that a wave of the box resembles least is taken."""

_PHASES = 4
_NEGLIGIBLE = 1e-9


def launch_order(arms: Sequence[str], mode: Mode, draw: str) -> tuple[LaunchSlot, ...]:
    """Return the launches of a run, drawn by `draw`, such as the run's id. A block is the n-th launch of each arm.

    screen: the arms as given. standard: three launches of each arm. careful: four. The linear part of a drift is fitted
    and removed (judge/arm_comparison.py); what remains resembles the drawn order in few draws.

    Raises:
        ValueError: an arm is named twice, or there is none.
    """
    if not arms or len(set(arms)) < len(arms):
        raise ValueError(f"arms must be named once each: {', '.join(arms) or 'none given'}")
    seen: Counter[str] = Counter()
    slots = []
    for arm in _drawn(arms, mode, draw):
        slots.append(LaunchSlot(arm=arm, block=seen[arm]))
        seen[arm] += 1
    return tuple(slots)


def _drawn(arms: Sequence[str], mode: Mode, draw: str) -> Sequence[str]:
    if len(arms) == 1 or mode is Mode.SCREEN:
        return [*arms] * PASSES[mode]
    if len(arms) == 2:
        return _pair(arms, PAIR_ORDERS[mode], draw)
    return min(_shuffles([*arms] * PASSES[mode], draw), key=lambda order: _worst_wave(order, arms[0]))


def _pair(arms: Sequence[str], orders: Mapping[str, int], draw: str) -> Sequence[str]:
    listed = [order for order, share in orders.items() for _ in range(share)]
    number = int.from_bytes(_digest("pair", draw))
    number, backwards = divmod(number, 2)
    number, swapped = divmod(number, 2)
    order = listed[number % len(listed)][:: -1 if backwards else 1]
    return [arms[(letter == "B") != bool(swapped)] for letter in order]


def _shuffles(slots: Sequence[str], draw: str) -> Iterator[Sequence[str]]:
    for attempt in range(TRIES):
        ranked = sorted(range(len(slots)), key=lambda at: _digest("shuffle", attempt, at, draw))
        yield [slots[at] for at in ranked]


def _worst_wave(order: Sequence[str], base: str) -> float:
    """Return the largest t that a wave of the box, and nothing else, gives any arm against the baseline."""
    count = len(order)
    return max(
        _largest_t(
            order, base, [math.sin(math.pi * (halves * place / count + phase / _PHASES)) for place in range(count)]
        )
        for halves in range(1, count + 1)
        for phase in range(_PHASES)
    )


def _largest_t(order: Sequence[str], base: str, levels: Sequence[float]) -> float:
    values: dict[str, dict[int, dict[str, float]]] = {}
    for place, arm in enumerate(order):
        values.setdefault(arm, {})[place] = {"": math.exp(levels[place])}
    fit = fit_cell(values)
    found = (fit.contrast(arm, base) for arm in values if arm != base)
    return max(abs(one.log_ratio) / max(one.se, _NEGLIGIBLE) for one in found if one is not None)


def _digest(*parts: object) -> bytes:
    return hashlib.sha256("|".join(("sparkdash-launches/v1", *map(str, parts))).encode()).digest()


def cell_order(cells: Sequence[PlannedCell], seed: int, block: int) -> tuple[PlannedCell, ...]:
    """Return the cells of one launch: shuffled by seed and block, hot ones apart; equal for all arms of the block.

    Hot are the cells with the most tokens in flight; between two of them the box may cool down.
    """
    shuffled = sorted(cells, key=lambda cell: _rank(cell, seed, block))
    hottest = sorted(shuffled, key=_heat, reverse=True)[: len(shuffled) // HOT_SHARE]
    hot = [cell for cell in shuffled if cell in hottest]
    cool = [cell for cell in shuffled if cell not in hottest]
    mixed: list[PlannedCell] = []
    for number, cell in enumerate(hot):
        mixed += cool[len(cool) * number // len(hot) : len(cool) * (number + 1) // len(hot)]
        mixed.append(cell)
    return tuple(mixed) if hot else tuple(cool)


def _heat(cell: PlannedCell) -> int:
    return cell.key.concurrency * (cell.key.context + cell.key.output)


def _rank(cell: PlannedCell, seed: int, block: int) -> bytes:
    return hashlib.sha256(f"sparkdash-order/v1|{seed}|{block}|{cell.key.model_dump_json()}".encode()).digest()
