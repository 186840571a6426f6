"""A run's values: the figures of one request, which samples count, and what is still to be measured."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from sparkdash.bench.results import CellRecord, LaunchRecord, RequestSample, aggregate_tok_s, gather
from sparkdash.bench.run import Arm, CellKey, LaunchSlot, Mode, PlannedCell, Run

AT = datetime(2026, 11, 21, 20, 0, tzinfo=UTC)
LONG = CellKey(suite="seeds", context=2048, output=400)
PAIR = CellKey(suite="seeds", context=512, output=256, concurrency=2)


def a_run(**changes: object) -> Run:
    """Two arms, ABBA, two cells of two repetitions."""
    return Run.model_validate(
        {
            "id": "20261121-200000-seeds",
            "suite": "seeds",
            "suite_version": "1",
            "suite_hash": "5eed",
            "arms": (Arm(name="plain", profile="a"), Arm(name="eagle", profile="b")),
            "baseline": "plain",
            "mode": Mode.STANDARD,
            "seed": 42,
            "created_at": AT,
            "order": tuple(LaunchSlot(arm=arm, block=0) for arm in ("plain", "eagle", "eagle", "plain")),
            "cells": (PlannedCell(key=LONG, reps=2), PlannedCell(key=PAIR, reps=2)),
            **changes,
        }
    )


def sample(key: CellKey = LONG, launch: int = 0, rep: int = 0, stream: int = 0, **changes: object) -> RequestSample:
    """400 tokens: the first after 0.5 s, the last after 4.5 s."""
    return RequestSample.model_validate(
        {
            "cell": key,
            "arm": a_run().order[launch].arm,
            "launch": launch,
            "rep": rep,
            "stream": stream,
            "prompt_id": f"p{rep}.{stream}",
            "t0_ns": 1_000_000_000,
            "response_ns": 1_400_000_000,
            "token_ns": 1_500_000_000,
            "visible_ns": 2_500_000_000,
            "last_ns": 5_500_000_000,
            "n": 400,
            "visible": 300,
            **changes,
        }
    )


def closed(key: CellKey = LONG, launch: int = 0, **changes: object) -> CellRecord:
    """The record that closes a cell."""
    ended = AT + timedelta(seconds=9)
    facts = {"key": key, "arm": a_run().order[launch].arm, "launch": launch, "started_at": AT, "ended_at": ended}
    return CellRecord.model_validate({**facts, **changes})


def started(launch: int = 0) -> LaunchRecord:
    return LaunchRecord(arm=a_run().order[launch].arm, index=launch, block=0, started_at=AT)


def cell_of(key: CellKey, launch: int) -> list[LaunchRecord | RequestSample | CellRecord]:
    """A whole cell: two repetitions of all its streams, closed."""
    streams = [sample(key, launch, rep, stream) for rep in range(2) for stream in range(key.concurrency)]
    return [*streams, closed(key, launch)]


def test_figures_of_one_request() -> None:
    """By the definitions: decode leaves the first chunk out, e2e does not, and hidden tokens are no visible ones."""
    one = sample(k1=4)
    assert (one.ttfr_s, one.ttft_s, one.ttfv_s, one.e2e_s) == pytest.approx((0.4, 0.5, 1.5, 4.5))
    assert one.decode_tok_s == pytest.approx(396 / 4)
    assert one.e2e_tok_s == pytest.approx(400 / 4.5)
    assert one.visible_tok_s == pytest.approx(300 / 4.5)


@pytest.mark.parametrize(
    "changes",
    [{"n": 15}, {"n": None}, {"last_ns": None}, {"token_ns": None}, {"last_ns": 1_500_000_000}],
    ids=["few tokens", "no usage", "no last", "no first", "all at once"],
)
def test_what_cannot_be_told_is_none(changes: dict[str, int | None]) -> None:
    """No decode rate out of too little."""
    assert sample(**changes).decode_tok_s is None


def test_aggregate_rate_spans_first_start_to_last_end() -> None:
    """800 tokens over 5 s, although each stream had 100 tok/s at most."""
    late = sample(PAIR, stream=1, t0_ns=1_500_000_000, token_ns=2_000_000_000, last_ns=6_000_000_000)
    assert aggregate_tok_s([sample(PAIR), late]) == pytest.approx(800 / 5)
    assert aggregate_tok_s([sample(PAIR), late.model_copy(update={"n": None})]) is None
    assert aggregate_tok_s([]) is None


def test_a_fresh_run_is_all_gaps_and_a_whole_one_has_none() -> None:
    """Cells x repetitions x launches, in the order of launches."""
    gaps = gather(a_run(), []).gaps()
    assert [(gap.launch, gap.cell, gap.reps) for gap in gaps] == [
        (i, key, (0, 1)) for i in range(4) for key in (LONG, PAIR)
    ]
    records = [record for i in range(4) for record in (started(i), *cell_of(LONG, i), *cell_of(PAIR, i))]
    assert gather(a_run(), records).gaps() == ()


def test_a_cell_that_was_broken_off_is_measured_again_and_no_finished_one() -> None:
    """Killed in the second cell of the second launch: that cell is a gap, the first three are none."""
    records = [started(0), *cell_of(LONG, 0), *cell_of(PAIR, 0), started(1), *cell_of(LONG, 1), sample(PAIR, 1)]
    results = gather(a_run(), records)
    assert results.gaps()[0].model_dump(include={"launch", "cell", "reps"}) == {
        "launch": 1,
        "cell": PAIR.model_dump(),
        "reps": (0, 1),
    }
    again = gather(a_run(), [*records, started(1), *cell_of(PAIR, 1)])
    assert [gap.launch for gap in again.gaps()] == [2, 2, 3, 3]
    assert len(again.samples) == 2 + 4 + 2 + 4


def test_void_samples_and_cells_are_gaps_with_their_reason() -> None:
    """One request failed: its repetition is missing. The clock fell: the whole cell is."""
    failed = sample(PAIR, rep=1, stream=1, void="HTTP 500")
    records = [
        *[sample(PAIR, rep=rep, stream=stream) for rep, stream in ((0, 0), (0, 1), (1, 0))],
        failed,
        closed(PAIR),
        *cell_of(LONG, 0)[:-1],
        closed(LONG, void="clock fell to 820 MHz"),
    ]
    results = gather(a_run(order=(LaunchSlot(arm="plain", block=0),)), records)
    assert [(gap.cell, gap.reps) for gap in results.gaps()] == [(LONG, (0, 1)), (PAIR, (1,))]
    assert {one.void for one in results.samples if one.cell == LONG} == {"clock fell to 820 MHz"}
    assert not results.good("plain", LONG)
    mended = gather(
        results.run, [*records, *[sample(PAIR, rep=1, stream=s) for s in (0, 1)], closed(PAIR), *cell_of(LONG, 0)]
    )
    assert mended.gaps() == ()
    assert all(one.void is None for one in mended.good("plain", PAIR))


def test_a_copy_with_other_samples_counts_those() -> None:
    """What was looked up before does not stick to it."""
    results = gather(a_run(), [started(0), *cell_of(LONG, 0)])
    assert len(results.good("plain", LONG)) == 2
    assert not results.model_copy(update={"samples": ()}).good("plain", LONG)
    assert len(results.good("plain", LONG)) == 2


def test_a_cell_may_belong_to_some_launches_only() -> None:
    """Math once per arm: the other launches have no gap there."""
    cells = (PlannedCell(key=LONG, reps=1), PlannedCell(key=PAIR, reps=1, launches=(0, 1)))
    gaps = gather(a_run(cells=cells), []).gaps()
    assert [gap.launch for gap in gaps if gap.cell == PAIR] == [0, 1]
    assert all(one.launch <= two.launch for one, two in pairwise(gaps))


def test_an_arm_is_found_by_its_name() -> None:
    assert a_run().arm("eagle").profile == "b"
    with pytest.raises(KeyError):
        a_run().arm("medusa")
