"""Properties of the bench for any figures, any text and any place at which the power goes."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sparkdash.bench import run_folder
from sparkdash.bench.judge.accuracy import score
from sparkdash.bench.judge.arm_comparison import fit_cell
from sparkdash.bench.judge.stats import Paired, bootstrap_median, mcnemar, paired_difference
from sparkdash.bench.judge.verdict import judge_contrasts
from sparkdash.bench.results import CellRecord, LaunchRecord, RequestSample
from sparkdash.bench.run import Arm, CellKey, LaunchSlot, Mode, PlannedCell
from sparkdash.bench.run_folder import RECORDS, Journal
from tests.bench.conftest import AT, run_of

FIGURE = st.floats(0.01, 1e4)
CELL = st.fixed_dictionaries(
    {
        arm: st.dictionaries(
            st.sampled_from(places), st.dictionaries(st.sampled_from("pqr"), FIGURE, min_size=1), min_size=3
        )
        for arm, places in (("A", (0, 3, 5, 6)), ("B", (1, 2, 4, 7)))
    }
)


@given(CELL, st.floats(0.1, 10))
@settings(max_examples=80, deadline=None)
def test_comparisons_mirror_and_scale(cell: dict[str, dict[int, dict[str, float]]], factor: float) -> None:
    """B over A is one over A over B, with the same doubt; a factor on one arm moves the ratio by it, and nothing else."""
    found = fit_cell(cell)
    there, back = found.contrast("B", "A"), found.contrast("A", "B")
    assert there is not None
    assert back is not None
    assert there.log_ratio == pytest.approx(-back.log_ratio, abs=1e-9)
    assert (there.se, there.df) == pytest.approx((back.se, back.df))
    times = {**cell, "B": {at: {one: value * factor for one, value in ones.items()} for at, ones in cell["B"].items()}}
    moved = fit_cell(times).contrast("B", "A")
    assert moved is not None
    shared = {one for ones in cell["A"].values() for one in ones} & {one for ones in cell["B"].values() for one in ones}
    assume(shared)
    assert moved.log_ratio == pytest.approx(there.log_ratio + math.log(factor), abs=1e-6)
    (verdict,) = judge_contrasts([there])
    assert verdict.text
    assert math.isfinite(verdict.delta or 0.0)


@given(st.lists(st.floats(0.1, 1e6), min_size=8, max_size=40))
def test_a_bootstrap_interval_lies_among_the_values(values: list[float]) -> None:
    low, high = bootstrap_median(values)
    assert min(values) <= low <= high <= max(values)


@given(*[st.integers(0, 60)] * 4)
def test_paired_shares_stay_in_their_range(both: int, only_a: int, only_b: int, neither: int) -> None:
    assume(both + only_a + only_b + neither)
    pairs = Paired(both, only_a, only_b, neither)
    low, high = paired_difference(pairs)
    assert -1 - 1e-9 <= low <= pairs.difference <= high <= 1 + 1e-9
    assert 0 < mcnemar(pairs) <= 1


ANYTHING = st.lists(st.integers(0, 0x2FFFF).map(chr)).map("".join)
"""As st.text(), without the table of all characters, which takes seconds to make."""


@settings(max_examples=60, deadline=None)
@given(ANYTHING | st.text(alphabet="ANSWER: -,.0123456789*`$\n</think>"), st.integers(-1000, 100_000))
def test_the_judge_takes_any_text(text: str, answer: int) -> None:
    score(answer, text)
    assume("<think>" not in text)  # what follows an unclosed one is no answer
    assert score(answer, f"{text}\nANSWER: {answer}") == "right"


def test_the_power_may_go_at_any_byte(tmp_path: Path) -> None:
    """Cut anywhere, the file is read without damage, loses at most its last record, and can be gone on with."""
    key = CellKey(suite="smoke", context=0, output=32)
    arms, order = (Arm(name="plain", profile="a"),), (LaunchSlot(arm="plain", block=0),)
    run = run_of(arms, order, (PlannedCell(key=key, reps=1),), Mode.SCREEN)
    launch = LaunchRecord(arm="plain", index=0, block=0, started_at=AT)
    records = (
        launch,
        RequestSample(cell=key, arm="plain", launch=0, rep=0, prompt_id="p", t0_ns=0),
        CellRecord(key=key, arm="plain", launch=0, started_at=AT, ended_at=AT),
    )
    place = run_folder.create_run_folder(run, tmp_path)
    with Journal(place) as journal:
        for record in records:
            journal.append(record)
    whole = (place / RECORDS).read_bytes()
    for cut in range(0, len(whole) + 1, 7):
        (place / RECORDS).write_bytes(whole[:cut])
        kept = whole[:cut].count(b"\n")
        results = run_folder.read_results(place)
        assert results.damaged == ()
        assert len(results.launches) + len(results.cells) == (kept > 0) + (kept > 2)
        with Journal(place) as journal:
            journal.append(launch)
        assert (len(run_folder.read_results(place).launches), run_folder.read_results(place).damaged) == (
            1 + (kept > 0),
            (),
        )
