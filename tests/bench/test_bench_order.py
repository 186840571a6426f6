"""The orders: drawn for each run, no wave resembles them, hot cells are apart, and every machine makes the same."""

import math
import random
from collections import Counter
from collections.abc import Sequence
from itertools import count, pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from thorough import tries

from sparkdash.bench.judge.arm_comparison import fit_cell
from sparkdash.bench.measure.cell_measurement import CellContext, measure_cell
from sparkdash.bench.measure.stream_answer import StreamedAnswer
from sparkdash.bench.measure.voids import BoxReading, count_warm_up
from sparkdash.bench.plan.run_plan import PAIR_ORDERS, cell_order, launch_order, new_run
from sparkdash.bench.plan.suites import CellGroup, Suite
from sparkdash.bench.results import WARMING, CellRecord, RequestSample, gather
from sparkdash.bench.run import Arm, CellKey, Mode, PlannedCell

STEADY = [1.00, 1.01, 0.99, 1.00, 1.01, 0.99, 1.00]


@pytest.mark.parametrize(
    ("seconds", "cold"),
    [
        (STEADY, 0),
        ([20.0, *STEADY], 1),
        ([3.0, 2.0, 1.5, *STEADY, *STEADY], 3),
        ([1.005, *[1.0] * 9], 0),  # half a percent is not worth a repetition
        ([*STEADY, 20.0], 0),  # becoming slower is not warming up
        ([1.2, *STEADY[:3]], 0),  # too few to tell
        ([1.12 - 0.004 * at for at in range(30)], 30),  # it never stood still
        ([1.0 if at % 4 else 1.3 for at in range(12)], 0),  # a class of text in turn
    ],
)
def test_the_first_repetitions(seconds: Sequence[float], cold: int) -> None:
    assert count_warm_up(seconds) == cold


def test_noise_is_not_taken_for_warming_up() -> None:
    chance = random.Random(7)
    for reps in (5, 10, 30):
        found = sum(count_warm_up([chance.gauss(1, 0.05) for _ in range(reps)]) > 0 for _ in range(500))
        assert found <= 10


class Paced:
    """An engine that answers in the given seconds, one request after another; it counts nothing."""

    def __init__(self, seconds: Sequence[float]) -> None:
        self._seconds = iter(seconds)
        self.asked = 0

    async def ask_all(self, contents: Sequence[str], tokens: int, **_: Any) -> list[StreamedAnswer]:
        self.asked += 1
        whole = int(next(self._seconds) * 1e9)
        usual = {"n": tokens, "prompt_tokens": 9, "finish_reason": "length"}
        return [StreamedAnswer(0, token_ns=whole // 10, last_ns=whole, **usual) for _ in contents]

    async def counters(self) -> None:
        return None


async def measured(seconds: Sequence[float], reps: int) -> tuple[CellRecord, list[RequestSample], int]:
    """A cell over that engine, its warm-up request first."""
    paced = Paced([1.0, *seconds])

    async def look() -> BoxReading:
        return BoxReading()

    counter: Any = SimpleNamespace(exact=False, template=1)  # a cell without a context counts no tokens
    measured: Any = paced
    ground = CellContext(
        measured=measured, counter=counter, seed=1, arm="A", launch=0, salt="s", look=look, lag_limit_ms=5.0
    )
    samples: list[RequestSample] = []
    key = CellKey(suite="s", context=0, output=32)
    cell = await measure_cell(ground, key, range(reps), samples.append, lambda _: None)
    return cell, samples, paced.asked


async def test_cold_repetitions_are_measured_again() -> None:
    """Cold ones are kept with their reason, their places are filled by later ones, and nothing is missing."""
    cell, samples, _ = await measured([9.0, *STEADY[:5], 1.0], 6)
    assert (cell.void, cell.warming) == (None, 1)
    suite = Suite(suite="s", version="1", about="", cells=(CellGroup(output=(32,)),))
    run = new_run(suite, (Arm(name="A", profile="a"),), Mode.SCREEN, reps=6)
    results = gather(run, [*samples, cell])
    assert [one.void for one in results.samples] == [WARMING, *[None] * 6]
    assert [one.rep for one in results.samples] == [0, 1, 2, 3, 4, 5, 0]
    assert results.gaps() == ()


async def test_an_engine_that_never_stands_still_voids_its_cell() -> None:
    falling = count(20.0, -0.5)
    cell, _, asked = await measured([next(falling) for _ in range(20)], 10)
    assert cell.void == f"{WARMING} after 20 repetitions"
    assert asked == 1 + 20


GOLDEN_PAIRS = ["AABBBA", "BAAABB", "BABAAB", "BABAAB"]
GOLDEN_TRIPLES = ["BCACAACCBABB", "ABBCACACBABC"]
GOLDEN = [(2048, 150), (512, 150), (0, 150), (8192, 400)]
CELLS = [
    PlannedCell(key=CellKey(suite="seeds", context=context, output=output), reps=5)
    for context in (0, 512, 2048, 8192, 16384)
    for output in (32, 150, 400)
]


def arms(mode: Mode, *names: str, draw: str = "run") -> str:
    return "".join(slot.arm for slot in launch_order(names, mode, draw))


def test_every_arm_has_as_many_launches() -> None:
    """Screen has one, standard three and careful four, whatever the draw and the number of arms."""
    for names in ("A", "AB", "ABC", "ABCDE"):
        for mode, passes in zip(Mode, (1, 3, 4), strict=True):
            for draw in map(str, range(tries(20))):
                assert Counter(arms(mode, *names, draw=draw)) == dict.fromkeys(names, passes)


def test_a_screen_has_the_arms_as_given() -> None:
    assert {arms(Mode.SCREEN, "B", "A", "C", draw=str(draw)) for draw in range(20)} == {"BAC"}


def test_orders_are_the_same_on_every_machine() -> None:
    assert [arms(Mode.STANDARD, "A", "B", draw=str(draw)) for draw in range(4)] == GOLDEN_PAIRS
    assert [arms(Mode.CAREFUL, "A", "B", "C", draw=str(draw)) for draw in range(2)] == GOLDEN_TRIPLES


@pytest.mark.parametrize("mode", [Mode.STANDARD, Mode.CAREFUL])
def test_orders_of_two_arms_are_drawn_as_often_as_they_are_listed(mode: Mode) -> None:
    drawn = Counter(arms(mode, "A", "B", draw=str(number)) for number in range(4000))
    swap = str.maketrans("AB", "BA")
    total = sum(PAIR_ORDERS[mode].values())
    for order, share in PAIR_ORDERS[mode].items():
        alike = {order, order[::-1], order.translate(swap), order[::-1].translate(swap)}
        counts = [drawn.pop(one) for one in alike]
        assert sum(counts) / 4000 == pytest.approx(share / total, abs=0.03)
        assert max(counts) < 1.5 * min(counts)
    assert not drawn


@pytest.mark.parametrize("mode", [Mode.STANDARD, Mode.CAREFUL])
@pytest.mark.parametrize("waves", [0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4])
def test_no_wave_of_the_box_alone_is_claimed_in_more_than_a_few_of_the_drawn_orders(mode: Mode, waves: float) -> None:
    """Equal arms that do not scatter at all, from any phase: a fixed order of this rhythm would be claimed always."""
    claims, draws = 0, 400
    for number in range(draws):
        order = arms(mode, "A", "B", draw=str(number))
        values: dict[str, dict[int, dict[str, float]]] = {"A": {}, "B": {}}
        for place, arm in enumerate(order):
            at = waves * (place + 0.5) / len(order) + number / draws
            values[arm][place] = {"": math.exp(0.02 * math.sin(2 * math.pi * at))}
        contrast = fit_cell(values).contrast("B", "A")
        assert contrast is not None
        claims += contrast.p <= 0.05
    assert claims / draws <= 0.08


def test_a_block_is_the_nth_launch_of_each_arm() -> None:
    slots = launch_order(("A", "B", "C"), Mode.CAREFUL, "run")
    assert all(Counter(one.arm for one in slots if one.block == block) == Counter("ABC") for block in range(4))
    for arm in "ABC":
        assert [one.block for one in slots if one.arm == arm] == [0, 1, 2, 3]


@pytest.mark.parametrize("names", [(), ("A", "A")])
def test_arms_are_named_once_each(names: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="once each"):
        launch_order(names, Mode.SCREEN, "run")


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
