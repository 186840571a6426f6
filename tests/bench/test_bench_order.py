"""The orders: arms alternate, hot cells are apart, and every machine makes the same order."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest

from sparkdash.bench.plan.launch_order import cell_order, launch_order
from sparkdash.bench.run import CellKey, Mode, PlannedCell

GOLDEN = [(2048, 150), (512, 150), (0, 150), (8192, 400)]
CELLS = [
    PlannedCell(key=CellKey(suite="seeds", context=context, output=output), reps=5)
    for context in (0, 512, 2048, 8192, 16384)
    for output in (32, 150, 400)
]


def arms(mode: Mode, *names: str) -> str:
    return "".join(slot.arm for slot in launch_order(names, mode))


def test_orders_by_mode() -> None:
    assert [arms(mode, "A", "B") for mode in Mode] == ["AB", "ABABAB", "ABABABAB"]
    assert arms(Mode.STANDARD, "A", "B", "C", "D") == "ABCDABCDABCD"
    assert arms(Mode.CAREFUL, "A", "B", "C") == "ABCABCABCABC"


def test_a_block_is_one_pass_over_all_arms() -> None:
    slots = launch_order(("A", "B", "C"), Mode.CAREFUL)
    assert [slot.block for slot in slots] == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert all({one.arm for one in slots if one.block == block} == {"A", "B", "C"} for block in range(4))


@pytest.mark.parametrize("names", ["AB", "ABC", "ABCDE"])
@pytest.mark.parametrize("mode", [Mode.STANDARD, Mode.CAREFUL])
def test_no_part_of_the_session_belongs_to_one_arm(names: str, mode: Mode) -> None:
    """Any stretch of the session has as many launches of one arm as of another, give or take one."""
    order = arms(mode, *names)
    for start, end in combinations(range(len(order) + 1), 2):
        counts = [order[start:end].count(arm) for arm in names]
        assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize("names", [(), ("A", "A")])
def test_arms_are_named_once_each(names: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="once each"):
        launch_order(names, Mode.SCREEN)


def test_cells_are_shuffled_by_seed_and_block_alone() -> None:
    """Every cell once; the same again for the same seed; another order for another block. The order itself is golden."""
    first = cell_order(CELLS, seed=42, block=0)
    assert sorted(first, key=repr) == sorted(CELLS, key=repr)
    assert first == cell_order(CELLS[::-1], seed=42, block=0)
    assert len({cell_order(CELLS, seed, block) for seed in (1, 2) for block in (0, 1)}) == 4
    assert [(cell.key.context, cell.key.output) for cell in first[:4]] == GOLDEN


def test_hot_cells_are_kept_apart() -> None:
    """The three 16K cells have cooler ones between them, whatever the seed."""
    for seed in range(50):
        hot = [place for place, cell in enumerate(cell_order(CELLS, seed, 0)) if cell.key.context == 16384]
        assert len(hot) == 3
        assert min(later - earlier for earlier, later in pairwise(hot)) > 2


def test_few_cells_are_only_shuffled() -> None:
    assert set(cell_order(CELLS[:2], seed=1, block=0)) == set(CELLS[:2])
    assert cell_order([], seed=1, block=0) == ()
