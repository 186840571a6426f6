"""Remaining time and share of a run while it is measured."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from sparkdash.bench.measure.runner import RunTimeLeft
from sparkdash.bench.plan import run_plan
from sparkdash.bench.run import CellKey
from sparkdash.domain.event import Measuring

CELLS = st.lists(
    st.tuples(st.integers(0, 200_000), st.integers(1, 4096), st.integers(1, 64), st.integers(1, 20)),
    min_size=1,
    max_size=40,
)


def told(pace: RunTimeLeft, launches: int) -> Measuring:
    """The value that the daemon is sent; it refuses a share outside 0..1 and a negative time."""
    left_s = pace.left_s(launches)
    return Measuring(
        run="r", doing="measuring", arm="A", launch=1, launches=2, done=0, cells=1, share=pace.share, left_s=left_s
    )


@given(CELLS, st.data())
def test_the_remaining_time_is_never_negative_however_the_sums_round(
    cells: list[tuple[int, ...]], data: st.DataObject
) -> None:
    """A run of any cells, measured in another order than they were added up in, from the start or from a gap."""
    works = [
        run_plan.token_cost(CellKey(suite="s", context=c, output=o, concurrency=n), reps) for c, o, n, reps in cells
    ]
    resumed = data.draw(st.integers(0, len(works) - 1))
    order = data.draw(st.permutations(works[resumed:]))
    ticks = itertools.count()
    pace = RunTimeLeft(lambda: float(next(ticks)))
    pace.begin(whole=sum(works), left=sum(works[resumed:]))
    pace.launched(3.0)
    for work in order:
        pace.worked(work)
        told(pace, 0)
    assert pace.left_s(0) is not None
    assert pace.share > 0.999_999


def test_the_default_cells_of_the_concurrency_suite_end_at_zero() -> None:
    """1, 2 and 4 requests at once over four launches: their square roots left -1.3e-14 s, and the report was lost."""
    works = [
        run_plan.token_cost(CellKey(suite="s", context=512, output=256, concurrency=n), 3)
        for _ in range(4)
        for n in (1, 2, 4)
    ]
    ticks = itertools.count()
    pace = RunTimeLeft(lambda: float(next(ticks)))
    pace.begin(whole=sum(works), left=sum(works))
    pace.launched(1.0)
    for work in reversed(works):
        pace.worked(work)
    assert told(pace, 0).left_s is not None
