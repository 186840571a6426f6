"""Requests, kills and servers in use are kept over restarts."""

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from stored import asked, load, rows, swap

from sparkdash.domain.memory import GuardKill, Measure
from sparkdash.domain.request import Request
from sparkdash.domain.swap import Start, Step, SwapOutcome
from sparkdash.store import Store, schema, transactions, usage
from sparkdash.store import store as store_module
from sparkdash.store.rows import Row
from sparkdash.store.schema import REQUESTS_KEPT
from sparkdash.units import GIB

DAY = 20_000


async def test_what_a_key_used_is_summed_by_day(path: Path, tmp_path: Path) -> None:
    at = DAY * 86400.0 + 5

    def ended(id_: str, when: float, key: str | None = "k", prompt: int | None = 10) -> Request:
        return asked(id_, started_at=when, finished_at=when, key=key, prompt_tokens=prompt, completion_tokens=1)

    async with Store.opened(path, [].append) as store:
        store.record_request(ended("1", at - 86400))
        store.record_request(ended("2", at))
        store.record_request(ended("3", at, prompt=None))
        store.record_request(ended("4", at, key=None))
        assert (store.tokens_on(DAY, "k"), store.tokens_on(DAY, "x"), store.tokens_on(DAY + 1, "k")) == (12, 0, 0)
    async with Store.opened(path, [].append) as store:
        assert store.tokens_on(DAY, "k") == 12
        used = {"k": usage.KeyUsage(3, 2, 20, 10, 3, 2), "x": usage.KeyUsage()}
        assert usage.read_key_usage(path, ["k", "x"], DAY) == used
        store.record_request(ended("5", at + 86400))
        assert store.tokens_on(DAY + 1, "k") == 11
    assert usage.read_key_usage(tmp_path / "none.db", ["k"], DAY) == {}


async def test_a_clock_that_was_ahead_lifts_no_keys_limit(path: Path) -> None:
    def ended(id_: str, day: int) -> Request:
        return asked(id_, started_at=day * 86400.0, key="k", prompt_tokens=10)

    async with Store.opened(path, [].append) as store:
        store.record_request(ended("1", DAY + 30))
        store.record_request(ended("2", DAY))
        assert store.tokens_on(DAY, "k") == 10
    async with Store.opened(path, [].append) as store:
        assert store.tokens_on(DAY, "k") == 10
        store.record_request(ended("3", DAY + 1))
        assert store.tokens_on(DAY + 1, "k") == 10


async def test_the_expected_time_is_the_median_of_the_last_swaps_and_outlives_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "new" / "sparkdash.db"
    async with Store.opened(path, lambda _: None) as store:
        assert store.learned.expected_s("f") is None
        store.record_swap(swap("1", 100, drain_s=500), "f")
        store.record_swap(swap("2", 80).replace(nodes=("local", "spark2")), "f")
        store.record_swap(swap("3", 1, outcome=SwapOutcome.FAILED), "f")
        store.record_swap(swap("4", 90), "f")
        assert store.learned.expected_s("f") == 90
        assert store.learned.expected_s("other") is None
    async with Store.opened(path, lambda _: None) as store:
        assert store.learned.expected_s("f") == 90
        for n in range(5, 10):
            store.record_swap(swap(str(n), 10), "f")
        assert store.learned.expected_s("f") == 10
    kept = rows(path, "SELECT outcome, failure, stage_s, nodes FROM swaps WHERE id IN ('2', '3') ORDER BY id")
    assert kept == [
        ("done", None, '{"drain": 0.0, "load": 80.0}', "local,spark2"),
        ("failed", "engine_crash", '{"drain": 0.0, "load": 1.0}', None),
    ]


async def test_a_clock_that_was_ahead_does_not_end_the_learning(path: Path) -> None:
    """Earlier records are older, whatever their clock says: in times, in memory and in what is forgotten."""
    async with Store.opened(path, lambda _: None) as store:
        for n in range(9_000_000, 9_000_005):
            store.record_swap(swap(str(n), 500), "f")
            store.record_load(load(str(n), 90), "a", "f")
        for n in range(5):
            store.record_swap(swap(str(n), 10), "f")
            store.record_load(load(str(n), 50), "a", "f")
        store.record_load(load("9000000", 90), "a", "f")  # of an engine that has run since
    async with Store.opened(path, lambda _: None) as store:
        assert store.learned.expected_s("f") == 10
        known = store.learned.footprint("f")
        assert known is not None
        assert known.steady_bytes == 50 * GIB


async def test_a_footprint_is_of_the_last_loads_that_count_and_outlives_a_restart(path: Path) -> None:
    async with Store.opened(path, lambda _: None) as store:
        assert store.learned.footprint("f") is None
        store.record_load(load("1", 90), "a", "f")
        store.record_load(load("2", 40, spoilt="another engine grew meanwhile"), "a", "f")
        for n in (3, 4, 5):
            store.record_load(load(str(n), 60 + n), "a", "f")
        store.record_load(load("4", 64), "a", "f")
        before = store.learned.footprint("f")
    assert before is not None
    assert (before.steady_bytes, before.peak_bytes) == (int(64.5 * GIB), 91 * GIB)
    assert (before.loads, before.at, before.measure) == (4, 5.0, Measure.PROCESSES)
    async with Store.opened(path, lambda _: None) as store:
        assert store.learned.footprint("f") == before
        for n in range(6, 11):
            store.record_load(load(str(n), 50), "a", "f")
        after = store.learned.footprint("f")
        assert after is not None
        assert (after.steady_bytes, after.peak_bytes, after.loads) == (50 * GIB, 51 * GIB, 5)
    assert rows(path, "SELECT spoilt FROM loads WHERE id = '2'") == [("another engine grew meanwhile",)]


async def test_the_steps_of_swaps_are_kept_by_launch_and_by_kin(path: Path) -> None:
    steps = (Step(name="start", s=2.5), Step(name="weights", s=40.0))
    async with Store.opened(path, lambda _: None) as store:
        for n in range(1, 8):
            took = swap(str(n), n).replace(steps=(*steps, Step(name="warm", s=float(n))))
            took = took.replace(start=Start(stages=(), caches_empty=n == 2))
            store.record_swap(took, f"f{n % 2}", "vllm org/model")
        failed = swap("9", 1, outcome=SwapOutcome.FAILED).model_copy(update={"steps": steps})
        store.record_swap(failed, "f1", "vllm org/model")
        rest = swap("10", 1).model_copy(update={"steps": steps})
        store.record_swap(rest, "f1", "vllm org/model", whole=False)
        assert store.learned.expected_s("f1") == 4
    async with Store.opened(path, lambda _: None) as store:
        assert [s[-1].s for s in store.learned.steps("f1")] == [1, 3, 5, 7]
        assert [s[-1].s for s in store.learned.steps("vllm org/model")] == [3, 4, 5, 6, 7]
        assert [s[-1].s for s in store.learned.steps("vllm org/model", caches_empty=True)] == [2]
        assert store.learned.steps("f1")[0][:2] == steps
        assert store.learned.steps("other") == ()


async def test_the_starts_of_a_model_are_kept_and_tell_the_first_on_an_image(path: Path) -> None:
    kin = "vllm org/model"
    start = Start(stages=(Step(name="weights", s=40.0),), compiled=True, disk_bytes=7, image_id="one")
    async with Store.opened(path, lambda _: None) as store:
        assert store.learned.is_first_on("one", kin) is True
        store.record_swap(swap("1", 100).replace(start=start), "f", kin)
        store.record_swap(swap("2", 100).replace(start=start.replace(image_id="two")), "g", kin)
        older = swap("3", 100).replace(steps=start.stages)  # as written before starts were recorded
        store.record_swap(older, "h", "vllm org/older")
        store.record_swap(swap("4", 1, outcome=SwapOutcome.FAILED).replace(start=start), "f", kin)
    async with Store.opened(path, lambda _: None) as store:
        assert store.learned.starts(kin) == (start.replace(image_id="two"), start)
        assert [store.learned.is_first_on(image, kin) for image in ("one", "two", "three")] == [False, False, True]
        assert store.learned.is_first_on("one", "vllm org/older") is None


async def test_requests_wait_for_one_another(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Store.opened(path, lambda _: None) as store:
        monkeypatch.setattr("sparkdash.store.store.TOGETHER_S", 0.0)
        store.record_request(asked("1"))
        async with asyncio.timeout(60):
            while not rows(path, "SELECT id FROM requests"):  # noqa: ASYNC110 - a file cannot tell
                await asyncio.sleep(0)
        monkeypatch.setattr("sparkdash.store.store.TOGETHER_S", 1e6)
        store.record_request(asked("2"))
        store.record_request(asked("3"))
        rows(path, "DROP TABLE swaps")
        store.record_swap(swap("1", 100), "f")
    assert rows(path, "SELECT id FROM requests") == [("1",), ("2",), ("3",)]


async def test_a_transaction_has_an_end_also_when_requests_never_do(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = list[int]()
    loop, done, write = asyncio.get_running_loop(), asyncio.Event(), transactions._write_requests

    async def record(number: int) -> None:
        store.record_request(asked(str(number)))

    def written(database: sqlite3.Connection, requests: Sequence[Row]) -> None:
        ((number,),) = rows(path, "SELECT count(*) FROM requests")
        kept.append(number)
        write(database, requests)
        if number < 3:
            asyncio.run_coroutine_threadsafe(record(number + 1), loop).result(60)
        else:
            loop.call_soon_threadsafe(done.set)

    monkeypatch.setattr(transactions, "_write_requests", written)
    monkeypatch.setattr(store_module, "TOGETHER_S", 0.0)
    async with Store.opened(path, lambda _: None) as store:
        await record(0)
        await asyncio.wait_for(done.wait(), 60)
    assert kept == [0, 1, 2, 3]


async def test_what_the_guard_killed_is_kept(path: Path) -> None:
    async with Store.opened(path, lambda _: None) as store:
        store.record_kill(GuardKill(at=5.0, profile="a", available=4 * GIB, processes=3, reason="It was too much."))
    assert rows(path, "PRAGMA journal_mode") == [("wal",)]
    assert rows(path, "SELECT * FROM kills") == [(5.0, "a", 4 * GIB, None, 3, "It was too much.")]


def fill(path: Path, table: str, number: int, columns: str, values: str) -> None:
    """Write so many rows; `n` counts them."""
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute(
            f"WITH n(n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM n WHERE n < {number})"
            f" INSERT INTO {table} ({columns}) SELECT {values} FROM n"
        )


REQUEST = "id, at, profile, client, route, state"


async def test_only_the_last_requests_are_kept_from_one_daemon_to_the_next(path: Path) -> None:
    for begins in (True, False):
        async with Store.opened(path, [].append):
            pass
        if begins:
            fill(path, "requests", REQUESTS_KEPT + 2, REQUEST, "printf('%06d', n), -n, 'a', 'c', '/v1', 'done'")
    assert rows(path, "SELECT count(*), min(id) FROM requests") == [(REQUESTS_KEPT, "000003")]


async def test_only_the_last_requests_are_kept_while_a_daemon_runs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "TRIM_EVERY", 10)
    async with Store.opened(path, [].append) as store:
        fill(path, "requests", REQUESTS_KEPT, REQUEST, "n, n, 'a', 'c', '/v1', 'done'")
        fill(path, "kills", schema.KILLS_KEPT, "at, profile, available_bytes, processes, reason", "n, 'a', 1, 1, 'r'")
        for id_ in range(10):
            store.record_request(asked(f"last {id_}"))
            store.record_kill(GuardKill(at=2.0, profile="a", available=1, pressure=None, processes=1, reason="r"))
    assert rows(path, "SELECT count(*) FROM requests") == [(REQUESTS_KEPT,)]
    assert rows(path, "SELECT count(*) FROM requests WHERE id LIKE 'last%'") == [(10,)]
    assert rows(path, "SELECT count(*) FROM kills") == [(schema.KILLS_KEPT,)]
