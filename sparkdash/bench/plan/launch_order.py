"""Order of the launches of a run, and of the cells in a launch.

Owns: the orders, and why a drift of the box cannot look like a difference between arms. Must not know: what is
measured.
Rule: an order depends on its arguments alone, on every machine and in every version of Python: ranks by SHA-256, not
by `random`.
Pure.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from sparkdash.bench.run import LaunchSlot, Mode, PlannedCell

HOT_SHARE = 4
"""Every fourth cell counts as hot; hot cells are kept apart."""


PASSES = {Mode.SCREEN: 1, Mode.STANDARD: 3, Mode.CAREFUL: 4}
"""Launches of each arm."""


def launch_order(arms: Sequence[str], mode: Mode) -> tuple[LaunchSlot, ...]:
    """Return the launches of a run. A block is one pass over all arms, always in the same order.

    screen: A B. standard: A B A B A B. careful: A B A B A B A B. More arms: A B C A B C A B C.
    Arms alternate throughout, so that only a drift as quick as the launches themselves can look like a difference. The
    linear part of a slow one is fitted and removed (judge/arm_comparison.py). Orders that turn round (A B B A) need no
    fit for it, but leave the middle of the session to one arm: a drift out and back then looks like a difference. Of
    all orders of six launches this one has the fewest false claims on drifting boxes (tests/perf/verdict_rates.py).

    Raises:
        ValueError: an arm is named twice, or there is none.
    """
    if not arms or len(set(arms)) < len(arms):
        raise ValueError(f"arms must be named once each: {', '.join(arms) or 'none given'}")
    return tuple(LaunchSlot(arm=arm, block=block) for block in range(PASSES[mode]) for arm in arms)


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
