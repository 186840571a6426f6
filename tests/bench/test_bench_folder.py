"""A run's folder: what a crash, a power cut, a second writer and a stranger's file do to it."""

import json
import subprocess
import sys
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from sparkdash.bench import run_folder
from sparkdash.bench.results import CellRecord, LaunchRecord, RequestSample, aggregate_tok_s, gather
from sparkdash.bench.run import Arm, CellKey, LaunchSlot, Mode, PlannedCell, Run
from sparkdash.bench.run_folder import RECORDS, Journal
from sparkdash.errors import AdmissionError, HostError
from tests.bench.conftest import AT, run_of

LONG = CellKey(suite="seeds", context=2048, output=400)
PAIR = CellKey(suite="seeds", context=512, output=256, concurrency=2)


def a_run(**changes: Any) -> Run:
    """Two arms, ABBA, two cells of two repetitions."""
    arms = (Arm(name="plain", profile="a"), Arm(name="eagle", profile="b"))
    order = [LaunchSlot(arm=arm, block=0) for arm in ("plain", "eagle", "eagle", "plain")]
    cells = (PlannedCell(key=LONG, reps=2), PlannedCell(key=PAIR, reps=2))
    return run_of(arms, mode=Mode.STANDARD, **{"order": order, "cells": cells, **changes})


def a_sample(key: CellKey = LONG, launch: int = 0, rep: int = 0, stream: int = 0, **changes: object) -> RequestSample:
    """400 tokens: the first after 0.5 s, the last after 4.5 s."""
    place = {"cell": key, "arm": a_run().order[launch].arm, "launch": launch, "rep": rep, "stream": stream}
    moments = {"t0_ns": 10**9, "token_ns": 1_500_000_000, "visible_ns": 2_500_000_000, "last_ns": 5_500_000_000}
    told = {"prompt_id": f"p{rep}.{stream}", "n": 400, "visible": 300}
    return RequestSample.model_validate({**place, **moments, **told, **changes})


def closed(key: CellKey = LONG, launch: int = 0, **changes: object) -> CellRecord:
    ended = AT + timedelta(seconds=9)
    facts = {"key": key, "arm": a_run().order[launch].arm, "launch": launch, "started_at": AT, "ended_at": ended}
    return CellRecord.model_validate({**facts, **changes})


def started(launch: int = 0) -> LaunchRecord:
    return LaunchRecord(arm=a_run().order[launch].arm, index=launch, block=0, started_at=AT)


def cell_of(key: CellKey, launch: int) -> list[LaunchRecord | RequestSample | CellRecord]:
    """A whole cell: two repetitions of all its streams, closed."""
    streams = [a_sample(key, launch, rep, stream) for rep in range(2) for stream in range(key.concurrency)]
    return [*streams, closed(key, launch)]


def test_figures_of_one_request() -> None:
    """By the definitions: decode leaves the first chunk out, e2e does not, and hidden tokens are no visible ones."""
    one = a_sample(k1=4)
    assert (one.ttft_s, one.ttfv_s, one.e2e_s) == pytest.approx((0.5, 1.5, 4.5))
    assert one.decode_tok_s == pytest.approx(396 / 4)
    assert one.e2e_tok_s == pytest.approx(400 / 4.5)
    assert one.visible_tok_s == pytest.approx(300 / 4.5)


@pytest.mark.parametrize(
    "changes",
    [{"n": 15}, {"n": None}, {"last_ns": None}, {"token_ns": None}, {"last_ns": 1_500_000_000}],
    ids=["few tokens", "no usage", "no last", "no first", "all at once"],
)
def test_what_cannot_be_told_is_none(changes: dict[str, int | None]) -> None:
    assert a_sample(**changes).decode_tok_s is None


def test_a_fresh_run_is_all_gaps_and_a_whole_one_has_none() -> None:
    gaps = gather(a_run(), []).gaps()
    assert [(gap.launch, gap.cell, gap.reps) for gap in gaps] == [
        (i, key, (0, 1)) for i in range(4) for key in (LONG, PAIR)
    ]
    records = [record for i in range(4) for record in (started(i), *cell_of(LONG, i), *cell_of(PAIR, i))]
    assert gather(a_run(), records).gaps() == ()


def test_a_cell_that_was_broken_off_is_measured_again_and_no_finished_one() -> None:
    records = [started(0), *cell_of(LONG, 0), *cell_of(PAIR, 0), started(1), *cell_of(LONG, 1), a_sample(PAIR, 1)]
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
    failed = a_sample(PAIR, rep=1, stream=1, void="HTTP 500")
    records = [
        *[a_sample(PAIR, rep=rep, stream=stream) for rep, stream in ((0, 0), (0, 1), (1, 0))],
        failed,
        closed(PAIR),
        *cell_of(LONG, 0)[:-1],
        closed(LONG, void="clock fell to 820 MHz"),
    ]
    results = gather(a_run(order=(LaunchSlot(arm="plain", block=0),)), records)
    assert [(gap.cell, gap.reps) for gap in results.gaps()] == [(LONG, (0, 1)), (PAIR, (1,))]
    assert {one.void for one in results.samples if one.cell == LONG} == {"clock fell to 820 MHz"}
    assert not results.good("plain", LONG)
    fixed = gather(
        results.run, [*records, *[a_sample(PAIR, rep=1, stream=s) for s in (0, 1)], closed(PAIR), *cell_of(LONG, 0)]
    )
    assert fixed.gaps() == ()
    assert all(one.void is None for one in fixed.good("plain", PAIR))


def test_a_copy_with_other_samples_counts_those() -> None:
    results = gather(a_run(), [started(0), *cell_of(LONG, 0)])
    assert len(results.good("plain", LONG)) == 2
    assert not results.model_copy(update={"samples": ()}).good("plain", LONG)
    assert len(results.good("plain", LONG)) == 2


def test_a_cell_may_belong_to_some_launches_only() -> None:
    cells = (PlannedCell(key=LONG, reps=1), PlannedCell(key=PAIR, reps=1, launches=(0, 1)))
    gaps = gather(a_run(cells=cells), []).gaps()
    assert [gap.launch for gap in gaps if gap.cell == PAIR] == [0, 1]
    assert all(one.launch <= two.launch for one, two in pairwise(gaps))


RUN = a_run(order=(LaunchSlot(arm="plain", block=0),), cells=(PlannedCell(key=LONG, reps=2),))
WHOLE = (started(), a_sample(rep=0, text="äß\n"), a_sample(rep=1), closed())


def test_the_power_may_go_at_any_byte(tmp_path: Path) -> None:
    """Cut anywhere, the file is read without damage, loses at most its last record, and can be gone on with."""
    place = run_folder.create_run_folder(RUN, tmp_path)
    with Journal(place) as journal:
        for record in WHOLE:
            journal.append(record)
    whole = (place / RECORDS).read_bytes()
    for cut in range(0, len(whole) + 1, 7):
        (place / RECORDS).write_bytes(whole[:cut])
        kept = whole[:cut].count(b"\n")
        results = run_folder.read_results(place)
        assert (results.damaged, len(results.launches) + len(results.cells)) == ((), (kept > 0) + (kept > 3))
        with Journal(place) as journal:
            journal.append(WHOLE[0])
        results = run_folder.read_results(place)
        assert (results.damaged, len(results.launches)) == ((), 1 + (kept > 0))


def test_records_outlive_a_killed_writer(tmp_path: Path) -> None:
    place = run_folder.create_run_folder(RUN, tmp_path)
    code = (
        "import os, sys; from pathlib import Path; from sparkdash.bench.run_folder import Journal;"
        "from sparkdash.bench.results import RECORD; journal = Journal(Path(sys.argv[1])).__enter__();"
        "[journal.append(RECORD.validate_json(line)) for line in sys.stdin]; os.kill(os.getpid(), 9)"
    )
    lines = "".join(one.model_dump_json() + "\n" for one in WHOLE)
    done = subprocess.run([sys.executable, "-c", code, str(place)], input=lines, text=True, timeout=60, check=False)
    assert done.returncode == -9
    assert run_folder.read_results(place).gaps() == ()


def test_a_line_that_cannot_be_read_is_named_and_is_a_gap(tmp_path: Path) -> None:
    place = run_folder.create_run_folder(RUN, tmp_path)
    lines = [one.model_dump_json().encode() for one in WHOLE]
    lines[1] = b"\0" * 100 + lines[1][100:]
    (place / RECORDS).write_bytes(b"\n".join(lines) + b"\n")
    results = run_folder.read_results(place)
    assert results.damaged == (2,)
    assert [gap.reps for gap in results.gaps()] == [(0,)]


def test_records_of_another_sparkdash_are_read(tmp_path: Path) -> None:
    """A field that this one does not know made every line damaged, and a resumed run measured the whole night again."""
    place = run_folder.create_run_folder(RUN, tmp_path)
    lines = [one.model_dump(mode="json") | {"novel": 1} for one in WHOLE]
    (place / run_folder.RUN).write_text(json.dumps(RUN.model_dump(mode="json") | {"most_loss": None}))
    (place / RECORDS).write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    results = run_folder.read_results(place)
    assert (results.gaps(), results.damaged) == ((), ())


def test_run_json_is_replaced_whole(tmp_path: Path) -> None:
    place = run_folder.create_run_folder(RUN, tmp_path)
    run_folder.save_run(place, RUN.model_copy(update={"ended_at": AT}))
    assert run_folder.read_run(place).ended_at == AT
    assert sorted(file.name for file in place.iterdir()) == [run_folder.RUN]


def test_a_run_has_one_writer(tmp_path: Path) -> None:
    place = run_folder.create_run_folder(RUN, tmp_path)
    with Journal(place) as journal:
        journal.append(started())
        with pytest.raises(AdmissionError, match="another process") as refused, Journal(place):
            pass
        assert refused.value.code == "run_busy"
    with Journal(place):
        pass
    assert len(run_folder.read_results(place).launches) == 1


def test_a_taken_id_is_refused(tmp_path: Path) -> None:
    run_folder.create_run_folder(RUN, tmp_path)
    with pytest.raises(AdmissionError, match="already a run"):
        run_folder.create_run_folder(RUN, tmp_path)


def test_runs_are_found_by_id_by_beginning_and_as_last(tmp_path: Path) -> None:
    ids = ["20261120-080000-seeds", "20261121-080000-seeds", "20261121-090000-math"]
    for one in ids:
        run_folder.create_run_folder(RUN.model_copy(update={"id": one}), tmp_path)
    (tmp_path / "20261122-000000-broken").mkdir()
    assert [place.name for place in run_folder.list_runs(tmp_path)] == ids[::-1]
    assert run_folder.find_run("last", tmp_path).name == ids[2]
    assert run_folder.find_run("20261120", tmp_path).name == ids[0]
    assert run_folder.find_run(ids[1], tmp_path).name == ids[1]
    for name, code in (("20261121", "run_ambiguous"), ("2025", "run_not_found"), ("", "run_not_found")):
        with pytest.raises(AdmissionError) as refused:
            run_folder.find_run(name, tmp_path)
        assert refused.value.code == code


@pytest.mark.parametrize(("text", "says"), [
    ("{", "no run that this sparkdash understands"),
    (RUN.model_dump_json().replace('"seed":42', '"seed":"x"'), "seed"),
    (RUN.model_copy(update={"format": 99}).model_dump_json(), "format 99"),
], ids=["torn", "malformed", "newer"])  # fmt: skip
def test_a_run_that_cannot_be_understood_says_why(tmp_path: Path, text: str, says: str) -> None:
    place = run_folder.create_run_folder(RUN, tmp_path)
    (place / run_folder.RUN).write_text(text)
    with pytest.raises(AdmissionError, match=says) as refused:
        run_folder.read_results(place)
    assert refused.value.code == "run_unreadable"


def test_a_missing_folder_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(AdmissionError, match="no run in"):
        run_folder.read_results(tmp_path / "nothing")


def test_a_folder_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "bench").write_text("")
    with pytest.raises(HostError, match="cannot be written") as refused:
        run_folder.create_run_folder(RUN, tmp_path / "bench")
    assert refused.value.code == "run_unwritable"


def test_aggregate_rate_spans_first_start_to_last_end() -> None:
    late = a_sample(PAIR, stream=1, t0_ns=1_500_000_000, token_ns=2_000_000_000, last_ns=6_000_000_000)
    assert aggregate_tok_s([a_sample(PAIR), late]) == pytest.approx(800 / 5)
    assert aggregate_tok_s([a_sample(PAIR), late.model_copy(update={"n": None})]) is None
    assert aggregate_tok_s([]) is None
