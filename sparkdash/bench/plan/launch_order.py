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


def launch_order(arms: Sequence[str], mode: Mode) -> tuple[LaunchSlot, ...]:
    """Return the launches of a run. A block is one pass over all arms.

    screen: A B. standard: A B B A, so that a linear drift weighs on both arms alike (its mean place in the order is
    the same for every arm). careful: A B B A then B A A B (the Thue-Morse order), which cancels a quadratic drift as
    well, and lets each arm be the first on a cool box once. Many arms: A B C C B A, and C B A A B C after it.

    Raises:
        ValueError: an arm is named twice, or there is none.
    """
    forth = tuple(arms)
    if not forth or len(set(forth)) < len(forth):
        raise ValueError(f"arms must be named once each: {', '.join(forth) or 'none given'}")
    back = forth[::-1]
    passes = {
        Mode.SCREEN: (forth,),
        Mode.STANDARD: (forth, back),
        Mode.CAREFUL: (forth, back, back, forth),
    }[mode]
    return tuple(LaunchSlot(arm=arm, block=block) for block, one in enumerate(passes) for arm in one)


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
