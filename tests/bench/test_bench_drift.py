"""Which repetitions show an engine that was still warming up; and that they are measured again."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from sparkdash.bench.measure.cell_measurement import CellContext, measure_cell
from sparkdash.bench.measure.stream_answer import StreamedAnswer
from sparkdash.bench.measure.voids import BoxReading, count_warm_up
from sparkdash.bench.plan.run_plan import new_run
from sparkdash.bench.plan.suites import CellGroup, Suite
from sparkdash.bench.results import WARMING, CellRecord, RequestSample, gather
from sparkdash.bench.run import Arm, CellKey, Mode

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
    """Slower than all that follow by more than chance, or falling all along."""
    assert count_warm_up(seconds) == cold


def test_noise_is_not_taken_for_warming_up() -> None:
    """At most one cell in fifty, whatever the number of repetitions."""
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
    """They are kept with their reason, their places are filled by later ones, and nothing is missing."""
    cell, samples, _ = await measured([9.0, *STEADY[:5], 1.0], 6)
    assert (cell.void, cell.warming) == (None, 1)
    suite = Suite(suite="s", version="1", about="", cells=(CellGroup(output=(32,)),))
    run = new_run(suite, (Arm(name="A", profile="a"),), Mode.SCREEN, reps=6)
    results = gather(run, [*samples, cell])
    assert [one.void for one in results.samples] == [WARMING, *[None] * 6]
    assert [one.rep for one in results.samples] == [0, 1, 2, 3, 4, 5, 0]
    assert results.gaps() == ()


async def test_an_engine_that_never_stands_still_voids_its_cell() -> None:
    """After all repetitions were measured twice."""
    falling = count(20.0, -0.5)
    cell, _, asked = await measured([next(falling) for _ in range(20)], 10)
    assert cell.void == f"{WARMING} after 20 repetitions"
    assert asked == 1 + 20
