"""A daemon that is killed at any moment: no torn record, nothing lost that the database had, and the next one goes on."""

from __future__ import annotations

import random
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from recorded import START, buckets, decode_at

from sparkdash.domain.history import SeriesSelection
from sparkdash.store import schema, series, transactions
from sparkdash.store.transactions import MarkJournal

DOOMED = Path(__file__).with_name("doomed_store.py")


def killed_after(file: Path, first: int, lines: int) -> tuple[int, set[str]]:
    """Run a recorder, kill it once it has told so many times what is written.

    Return the last second that it told, and the swaps that it told of.
    """
    command = [sys.executable, str(DOOMED), str(file), str(first), "0"]
    written: list[int] = []
    swaps: set[str] = set()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        for line in child.stdout:
            if line.startswith("swap "):
                swaps.add(line.split()[1])
            else:
                written.append(int(line))
            if len(written) == lines:
                child.kill()
    return written[lines - 1], swaps


def next_daemon_finds(file: Path) -> set[str]:
    """Open the database as the next daemon does; return the swaps in it."""
    database, _ = transactions.read_database(file, MarkJournal(file).read())
    with closing(database):
        return {id_ for (id_,) in database.execute("SELECT id FROM swaps")}


@pytest.mark.timeout(120)
def test_a_killed_recorder_loses_nothing_that_was_written_or_told_and_tears_nothing(tmp_path: Path) -> None:
    """Several lives over one file: seconds without holes, requests that agree with their sums, charts of plain sums, and
    every swap that anybody heard of.
    """
    file, chance, first = tmp_path / "past.db", random.Random(3), START
    every: list[tuple[float, float]] = []
    for _ in range(3):
        told, swaps = killed_after(file, first, chance.randrange(5, 40))
        assert swaps <= next_daemon_finds(file)
        with closing(schema.connect(file)) as database:
            assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            found = [start for (start,) in database.execute(
                "SELECT DISTINCT start FROM history_seconds WHERE start >= ? ORDER BY start", (first,)
            )]  # fmt: skip
            assert found == list(range(first, found[-1] + 1))
            assert found[-1] >= told
            every += [(at, decode_at(at)) for at in found]
            (requests,) = database.execute("SELECT count(*) FROM requests").fetchone()
            assert database.execute("SELECT sum(requests) FROM usage_hours").fetchone() == (requests,)
            wanted = SeriesSelection(
                figure="decode_tok_s", profile="alpha", node="local", since=START, until=found[-1] + 1, points=30
            )
            answer = series.read_series(database, wanted, found[-1] + 1)
        expected = buckets(every, int(answer.step_s))
        assert sum(answer.count) == len(every)
        for start, mean in zip(answer.start, answer.mean, strict=True):
            if int(start) in expected:
                assert mean == pytest.approx(expected[int(start)][2], rel=1e-4)
        first = found[-1] + 7
