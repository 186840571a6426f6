"""Recorded figures: charts equal plain sums over all samples, whatever the width, and gaps stay gaps."""

import asyncio
import random
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import uvloop
from recorded import START, buckets, decode_at, sample
from stored import asked, rows

from sparkdash.api.requests import RecentQuery, SeriesQuery, UsageQuery
from sparkdash.domain.history import Series, measured_of
from sparkdash.domain.metric import Metric, Sample
from sparkdash.store import Store, schema, series, transactions, usage
from sparkdash.store.figures import SecondBuckets, SecondRow

DOOMED = Path(__file__).with_name("doomed_store.py")


def killed_after(file: Path, first: int, lines: int) -> int:
    """Run a recorder, kill it once it has told so many times what is written; return the last second that it told."""
    command = [sys.executable, str(DOOMED), str(file), str(first)]
    written: list[int] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        for line in child.stdout:
            written.append(int(line))
            if len(written) == lines:
                child.kill()
    return written[lines - 1]


@pytest.mark.timeout(120)
def test_a_killed_recorder_loses_nothing_that_was_written_and_tears_nothing(tmp_path: Path) -> None:
    """Several lives over one file: seconds without holes, requests that agree with their sums, charts of plain sums."""
    file, chance, first = tmp_path / "past.db", random.Random(3), START
    every: list[tuple[float, float]] = []
    for _ in range(3):
        told = killed_after(file, first, chance.randrange(5, 40))
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
            wanted = SeriesQuery(figure="decode_tok_s", profile="alpha", points=30)
            answer = series.read_series(database, wanted, (START, found[-1] + 1), found[-1] + 1)
        expected = buckets(every, int(answer.step_s))
        assert sum(answer.count) == len(every)
        for start, mean in zip(answer.start, answer.mean, strict=True):
            if int(start) in expected:
                assert mean == pytest.approx(expected[int(start)][2], rel=1e-4)
        first = found[-1] + 7


HOUR, DAY = 3600, 86400


class Past:
    """A database that is written as the store's thread does, without the thread."""

    def __init__(self, path: Path, most_bytes: int = 2**40) -> None:
        self.database = schema.connect(path)
        self.most_bytes = most_bytes
        self._seconds = SecondBuckets()
        self._pending: list[SecondRow] = []

    def record(self, one: Sample, *, together: int = 50) -> None:
        self._pending += self._seconds.add(one.at, measured_of(one))
        if len(self._pending) >= together:
            self.write()

    def write(self) -> None:
        self.database.execute("BEGIN")
        transactions.write_seconds(self.database, self._pending, self.most_bytes)
        self.database.execute("COMMIT")
        self._pending = []

    def series(self, since: float, until: float, points: int, now: float, **rest: Any) -> Series:
        """Ask for a figure; the engine's decode rate without a name."""
        asked = SeriesQuery(points=points, **{"figure": "decode_tok_s", "profile": "alpha"} | rest)
        return series.read_series(self.database, asked, (since, until), now)


@pytest.fixture
def past(tmp_path: Path) -> Any:
    made = Past(tmp_path / "past.db")
    with closing(made.database):
        yield made


def same(series: Series, expected: dict[int, tuple[int, float, float, float]]) -> None:
    """Every bucket equals the plain sums, and no other has a value."""
    told = {
        int(start): (count, low, mean, high)
        for start, count, low, mean, high in zip(
            series.start, series.count, series.min, series.mean, series.max, strict=True
        )
        if count
    }
    assert told.keys() == expected.keys()
    for start, (count, *figures) in expected.items():
        assert told[start][0] == count
        assert told[start][1:] == pytest.approx(figures, rel=1e-5)


def test_charts_of_every_width_equal_plain_sums_over_all_samples(past: Past) -> None:
    end = START + 3 * HOUR + 1234
    for at in range(START, end + 1):
        past.record(sample(float(at)))
    past.write()
    every = [(at, decode_at(at)) for at in range(START, end)]
    for since, points in ((end - 600, 600), (end - HOUR, 300), (START, 1000), (START, 40), (START, 3)):
        told = past.series(since, end, points, end)
        step = int(told.step_s)
        begin = since // step * step
        same(told, buckets([one for one in every if one[0] >= begin], step))
        assert max(high for high in told.max if high) > 900
    assert {past.series(START, end, points, end).step_s for points in (1000, 40, 3)} == {20, 600, 7200}


def test_a_pause_is_a_gap_and_slow_samples_are_none(past: Past) -> None:
    for at in (*range(START, START + 60), *range(START + 200, START + 300, 15)):
        past.record(sample(at + 0.5))
    past.write()
    told = past.series(START, START + 290, 29, START + 300)
    assert told.step_s == 10
    assert list(told.count) == [10] * 6 + [0] * 14 + [1, 1, 0, 1, 1, 0, 1, 1, 0]
    assert told.mean[6:20] == (None,) * 14
    assert told.mean[22] == told.mean[21] is not None
    assert past.series(START - 100, START, 10, START + 300).mean == (None,) * 10
    assert past.series(START, START + 290, 29, START + 300, profile="nobody").mean == (None,) * 29


def test_a_figure_that_is_not_known_is_no_zero(past: Past) -> None:
    for at in range(START, START + 30):
        past.record(sample(at))
    past.write()
    assert past.series(START, START + 20, 2, START + 30, figure="waiting").mean == (None, None)
    box, engine = (past.series(START, START + 20, 2, START + 30, profile=name) for name in ("", "alpha"))
    assert (box.mean, box.count) == (engine.mean, engine.count)
    power = past.series(START, START + 20, 1, START + 30, profile="", figure="gpu_power_w")
    same(power, buckets([(at, 20.0 + at % 60) for at in range(START, START + 20)], 20))


def test_seconds_are_kept_for_an_hour_and_tens_for_two_days(past: Past) -> None:
    for at in range(START, START + 3 * DAY, 15):
        past.record(sample(at, engine=None), together=400)
    past.write()
    end = START + 3 * DAY
    count = {
        step: past.database.execute("SELECT min(start) FROM history_buckets WHERE step = ?", (step,)).fetchone()[0]
        for step in (10, 300)
    }
    (second,) = past.database.execute("SELECT min(start) FROM history_seconds").fetchone()
    assert end - HOUR - 120 <= second <= end - HOUR + 120
    assert end - 2 * DAY - 120 <= count[10] <= end - 2 * DAY + 120
    assert count[300] == START // 300 * 300
    old = past.series(START, START + HOUR, 3600, end, profile="", figure="gpu_power_w")
    assert old.step_s == 300
    same(old, buckets([(at, 20.0 + at % 60) for at in range(START, START + HOUR, 15)], 300))


def test_the_file_stays_below_its_limit_and_the_oldest_leaves_first(tmp_path: Path) -> None:
    most = 400_000
    past = Past(tmp_path / "past.db", most)
    with closing(past.database):
        end = START + 40 * DAY
        for at in range(START, end, 280):
            past.record(sample(at), together=200)
        past.write()
        assert transactions.used_bytes(past.database) <= most * 1.2
        oldest, newest = past.database.execute(
            "SELECT min(start), max(start) FROM history_buckets WHERE step = 300"
        ).fetchone()
        assert START + 2 * DAY < oldest < newest
        assert newest >= end - 900
        assert past.database.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_clock_that_is_set_back_or_ahead_ends_no_recording(past: Past) -> None:
    for begin in (START, START + 30 * DAY, START + HOUR):
        for at in range(begin, begin + 601):
            past.record(sample(at))
        past.write()
    for begin in (START, START + HOUR):
        every = [(at, decode_at(at)) for at in range(begin, begin + 600)]
        same(past.series(begin, begin + 600, 2, begin + 700), buckets(every, 300))


def test_a_counter_that_begins_anew_with_each_daemon_is_added_up(past: Past) -> None:
    for begin in (START, START + 2 * HOUR):
        for at in range(begin, begin + HOUR + 1000):
            grown = sample(at).energy
            assert grown is not None
            past.record(sample(at).replace(energy=grown.replace(busy_wh=(at - begin) / 100)))
    past.write()
    report = usage.read_usage(past.database, UsageQuery(by="hour"), (START, START + 4 * HOUR))
    assert report.busy_wh == pytest.approx(2 * (HOUR + 999) / 100, abs=0.02)
    assert report.idle_wh == pytest.approx(0, abs=0.01)
    narrowed = UsageQuery(by="hour", profile="alpha")
    assert usage.read_usage(past.database, narrowed, (START, START + HOUR)).busy_wh is None


async def test_the_last_minutes_are_handed_out_for_sparklines_after_a_restart(path: Path) -> None:
    async with Store.opened(path, lambda _: None) as store:
        for at in range(START, START + 100):
            store.record_sample(sample(at))
    async with Store.opened(path, lambda _: None) as store:
        told = await store.history.recent(RecentQuery(figure=["decode_tok_s"], seconds=60, step_s=2), START + 100)
        assert [(one.profile, one.figure) for one in told.series] == [("", "decode_tok_s"), ("alpha", "decode_tok_s")]
        expected = buckets([(at, decode_at(at)) for at in range(START + 40, START + 100)], 2)
        assert (told.begin, told.step_s) == (START + 40, 2)
        assert told.series[1].mean == pytest.approx([mean for _, _, mean, _ in expected.values()], rel=1e-4)
        figures = await store.history.figures()
        assert [(one.profile, one.first, one.last) for one in figures.subjects] == [
            ("", START, START + 99), ("alpha", START, START + 99),
        ]  # fmt: skip


async def test_figures_of_rest_wait_for_the_next_of_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    together, done = list[list[int]](), asyncio.Event()
    loop, write = asyncio.get_running_loop(), transactions.write_seconds

    def written(database: sqlite3.Connection, seconds: Sequence[SecondRow], most_bytes: int) -> None:
        together.append(sorted({row.second for row in seconds}))
        write(database, seconds, most_bytes)
        loop.call_soon_threadsafe(done.set)

    monkeypatch.setattr(transactions, "write_seconds", written)
    async with Store.opened(tmp_path / "sparkdash.db", lambda _: None) as store, asyncio.timeout(60):
        for at in range(START, START + 3):
            store.record_sample(at_rest(sample(at)))
            await asyncio.sleep(0)  # a timer without delay would fire
        store.record_sample(sample(START + 3))
        await done.wait()
        assert together == [[START, START + 1, START + 2, START + 3]]


def at_rest(told: Sample) -> Sample:
    values = {Metric.RUNNING: 0.0}
    return told.replace(engines={name: one.replace(values=values) for name, one in told.engines.items()})


async def test_figures_that_cannot_be_written_cost_no_request(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(transactions, "_roll_up", broken)
    async with Store.opened(path, lambda _: None) as store:
        for at in range(START, START + 5):
            store.record_sample(sample(at))
        store.record_attached("a", "f")
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT count(*) FROM attached").fetchone() == (1,)
        assert database.execute("SELECT count(*) FROM history_seconds").fetchone() == (0,)


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_request_that_ends_as_a_sample_is_about_to_be_written_is_recorded_on_either_event_loop(
    path: Path, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """uvloop's handle of a call without delay does not tell its time."""

    async def recorded() -> None:
        async with Store.opened(path, lambda _: None) as store:
            store.record_sample(sample(START))
            store.record_request(asked("r"))
            store.record_sample(sample(START))

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(recorded())
    assert rows(path, "SELECT id FROM requests") == [("r",)]
