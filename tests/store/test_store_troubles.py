"""A bad, busy or full database never stops the service."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from logs import capture_logs
from recorded import START, sample
from recorded import asked as past_request
from stored import asked, rows, swap

from sparkdash.domain.engine import Failure, Parked
from sparkdash.domain.event import Fact, Notice
from sparkdash.domain.swap import Step
from sparkdash.store import Store, transactions, usage
from sparkdash.store import store as store_module
from sparkdash.store.figures import SecondRow
from sparkdash.store.transactions import AT_ONCE


async def test_a_file_of_the_version_before_keeps_its_rows(path: Path) -> None:
    async with Store.opened(path, lambda _: None) as store:
        store.record_swap(swap("1", 70), "f")
        store.record_request(past_request(1, START))
    with closing(sqlite3.connect(path)) as database:
        database.executescript("ALTER TABLE requests DROP COLUMN session; PRAGMA user_version = 13;")
    for number in (2, 3):
        async with Store.opened(path, lambda _: None) as store:
            assert store.learned.expected_s("f") == 70
            store.record_request(past_request(number, START))
    assert rows(path, "PRAGMA user_version") == [(14,)]
    assert rows(path, "SELECT count(*) FROM requests") == [(3,)]


def mode(path: Path) -> str:
    return f"{path.stat().st_mode & 0o777:o}"


GARBAGE = b"this is not a database, whatever its name says" * 100


def set_aside(path: Path) -> None:
    """Put garbage in the place of the database."""
    path.rename(path.with_name("kept"))
    path.write_bytes(GARBAGE)


def put_back(path: Path) -> None:
    path.with_name("kept").rename(path)


@contextmanager
def locked(path: Path, _: Store) -> Iterator[None]:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield


@contextmanager
def full(_: Path, store: Store) -> Iterator[None]:
    """The disk has no room for another page."""
    database = store._database
    assert database is not None
    database.execute("PRAGMA max_page_count = 1")
    yield
    database.execute("PRAGMA max_page_count = 1000000")


@pytest.mark.parametrize("damage", ["garbage", "folder", "newer", "older", "no folder", "rows"])
async def test_a_database_that_cannot_be_used_is_told_and_gone_without(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "sparkdash.db"
    match damage:
        case "garbage":
            path.write_bytes(GARBAGE)
        case "folder":
            path.mkdir()
        case "newer" | "older":
            rows(path, f"PRAGMA user_version = {99 if damage == 'newer' else 12}")
        case "rows":
            async with Store.opened(path, lambda _: None) as store:
                store.record_swap(swap("2", 100), "f")
            with closing(sqlite3.connect(path, isolation_level=None)) as database:
                database.execute("UPDATE swaps SET steps = 'half a wo'")
        case _:
            (tmp_path / "file").write_text("")
            path = tmp_path / "file" / "sparkdash.db"
    told: list[Fact] = []
    async with Store.opened(path, told.append) as store:
        store.record_swap(swap("1", 100), "f")
        assert store.learned.expected_s("f") == 100
    (notice,) = told
    assert isinstance(notice, Notice)
    assert notice.code == "store_unusable"
    assert str(path) in notice.text


async def test_a_database_that_others_could_read_is_closed_to_them_and_the_log_says_so_once(tmp_path: Path) -> None:
    path = tmp_path / "sparkdash.db"
    path.touch(mode=0o644)
    path.chmod(0o644)  # whatever the umask
    with capture_logs() as said:
        for _ in range(2):
            async with Store.opened(path, lambda _: None) as store:
                store.record_swap(swap("1", 100), "f")
                open_to = [mode(path.with_name(path.name + end)) for end in ("", "-wal", "-shm")]
        async with Store.opened(tmp_path / "new.db", lambda _: None):
            pass
    assert open_to == ["600"] * 3
    assert [(one["path"], one["mode"]) for one in said] == [(str(path), "644")]


async def code(told: asyncio.Queue[Fact]) -> str:
    fact = await told.get()
    assert isinstance(fact, Notice)
    return fact.code


@pytest.mark.parametrize("trouble", [locked, full])
async def test_what_cannot_be_written_now_is_written_later(
    trouble: Callable[..., AbstractContextManager[None]], path: Path, hasty: None
) -> None:
    told = asyncio.Queue[Fact]()

    def record(store: Store, *ids: int) -> None:
        for id_ in ids:
            store.record_request(asked(str(id_), client="c" * 400, prompt_tokens=1, key="k"))
            store.record_swap(swap(str(id_), 100), "f")

    async with Store.opened(path, told.put_nowait) as store, asyncio.timeout(60):
        with trouble(path, store):
            record(store, *range(50))
            assert await code(told) == "store_waits"
            record(store, *range(50, 60))
        assert await code(told) == "store_written"
        with trouble(path, store):
            record(store, *range(60, 110))
            assert await code(told) == "store_waits"
    assert told.qsize() <= 1  # that it was written, where a try was under way
    assert [int(id_) for (id_,) in rows(path, "SELECT id FROM requests ORDER BY rowid")] == list(range(110))
    assert [int(id_) for (id_,) in rows(path, "SELECT id FROM swaps ORDER BY rowid")] == list(range(110))
    assert rows(path, "SELECT sum(requests), sum(prompt) FROM usage_hours WHERE key = 'k'") == [(110, 110)]


@pytest.mark.parametrize("trouble", [locked, full])
async def test_figures_wait_for_the_disk_and_go_on(
    trouble: Callable[..., AbstractContextManager[None]], path: Path, hasty: None
) -> None:
    told = asyncio.Queue[Fact]()

    async with Store.opened(path, told.put_nowait) as store, asyncio.timeout(60):
        with trouble(path, store):
            for number in range(50):
                store.record_request(past_request(number, START, client="c" * 400))
            assert await code(told) == "store_waits"
            for at in range(START, START + 100):
                store.record_sample(sample(at))
        assert await code(told) == "store_written"
        store.record_sample(sample(START + 100))
    seconds = rows(path, "SELECT min(start), max(start), count(DISTINCT start) FROM history_seconds")
    assert seconds == [(START, START + 100, 101)]
    assert rows(path, "SELECT count(*) FROM requests") == rows(path, "SELECT sum(requests) FROM usage_hours") == [(50,)]


def test_figures_that_wait_too_long_lose_their_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "SECONDS_HELD", 40)
    pending = store_module.PendingRows()
    pending.requests.append(past_request(1, START))
    pending.seconds += [SecondRow(second, "a", "local", {}) for second in range(100)]
    pending.put_back(pending.take())
    requests, others, seconds = pending.take()
    assert (len(requests), len(others)) == (1, 0)
    assert [row.second for row in seconds] == list(range(60, 100))


def test_requests_that_wait_too_long_are_still_added_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "HELD", 2)
    pending = store_module.PendingRows()
    for number in range(5):
        pending.requests.append(past_request(number, START))
    pending.put_back(pending.take())
    requests, others, _ = pending.take()
    assert (len(requests), [row[4] for _, row in others]) == (2, [3])


async def test_the_database_lives_in_one_named_thread_that_ends_with_it(tmp_path: Path) -> None:
    """So that a stuck disk shows by name and never blocks the loop."""
    before = set(threading.enumerate())  # an earlier test's thread may still be ending
    async with Store.opened(tmp_path / "sparkdash.db", lambda _: None):
        own = [t for t in threading.enumerate() if t not in before and t.name.startswith("sqlite")]
        assert [t.name for t in own] == ["sqlite_0"]
    assert not own[0].is_alive()


async def test_a_database_that_can_be_opened_later_is_told_and_has_everything(path: Path, hasty: None) -> None:
    told = asyncio.Queue[Fact]()
    async with Store.opened(path, [].append) as store:
        for n in range(5):
            store.record_swap(swap(str(n), 100), "f")
    set_aside(path)
    async with Store.opened(path, told.put_nowait) as store, asyncio.timeout(60):
        assert store.learned.expected_s("f") is None
        store.record_swap(swap("7", 10), "f")
        store.record_request(asked("r"))
        assert store.learned.expected_s("f") == 10
        put_back(path)
        codes = [fact.code for fact in (await told.get(), await told.get()) if isinstance(fact, Notice)]
        assert codes == ["store_unusable", "store_written"]
        assert store.learned.expected_s("f") == 100
        for n in range(2):
            store.record_swap(swap(str(8 + n), 10), "f")
        assert store.learned.expected_s("f") == 10
    assert told.empty()
    assert [id_ for (id_,) in rows(path, "SELECT id FROM swaps ORDER BY rowid")] == [*"01234789"]
    assert rows(path, "SELECT id FROM requests") == [("r",)]


async def test_what_was_parked_or_attached_before_a_late_opening_is_not_recalled_later(path: Path, hasty: None) -> None:
    told = asyncio.Queue[Fact]()
    parked = Parked(since=1.0, failures=2, failure=Failure(code="c", message="m"), fingerprint="f")
    async with Store.opened(path, [].append) as store:
        for name in "ab":
            store.record_parked(name, parked)
            store.record_attached(name, "f")
    set_aside(path)
    async with Store.opened(path, told.put_nowait) as store, asyncio.timeout(60):
        store.record_parked("b", parked)
        store.record_attached("b", "g")
        put_back(path)
        assert [getattr(await told.get(), "code", "") for _ in range(2)] == ["store_unusable", "store_written"]
        assert (store.parked, store.attached) == ({}, {})
    async with Store.opened(path, told.put_nowait) as store:
        assert (store.parked, store.attached) == ({"b": parked}, {"b": "g"})


async def test_a_database_that_broke_is_opened_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = asyncio.Queue[Fact]()
    monkeypatch.setattr(store_module, "AGAIN_S", 0.01)
    async with Store.opened(path, told.put_nowait) as store, asyncio.timeout(60):
        store.record_swap(swap("1", 100).replace(steps=(Step(name="load", s=100.0),)), "f")
        rows(path, "DROP TABLE requests")
        store.record_request(asked("r"))
        assert [getattr(await told.get(), "code", "") for _ in range(2)] == ["store_unusable", "store_written"]
        store.record_request(asked("s"))
        assert len(store.learned.steps("f")) == 1
        assert store.learned.expected_s("f") == 100
    assert rows(path, "SELECT id FROM requests") == [("s",)]


async def test_a_row_that_cannot_be_kept_costs_no_other(path: Path) -> None:
    """An engine that counts beyond 64 bits: its request is passed over, the ones behind it are kept, and closing goes well."""
    told: list[Fact] = []
    with capture_logs() as logs:
        async with Store.opened(path, told.append) as store:
            for id_, tokens in (("1", 2**63), *((str(number), 5) for number in range(2, 2 * AT_ONCE + 3))):
                store.record_request(asked(id_, prompt_tokens=tokens, key="k"))
    assert [line["id"] for line in logs if "left out" in line["event"]] == ["1"]
    kept = [*range(2, 2 * AT_ONCE + 3)]
    assert rows(path, "SELECT CAST(id AS INTEGER) AS number FROM requests ORDER BY number") == [(id_,) for id_ in kept]
    counted = usage.KeyUsage(len(kept) + 1, len(kept) + 1, 5 * len(kept), 5 * len(kept))
    assert usage.read_key_usage(path, ["k"], 0)["k"] == counted
    assert told == []
    assert mode(path) == "600", "others on the box read who asked for what"


async def test_rows_that_a_fault_of_ours_loses_are_told_in_the_log(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, faults = transactions.write_rows, [ValueError("no such thing")]

    tried = threading.Event()

    def fails_once(*given: Any, **named: Any) -> None:
        if faults:
            tried.set()
            raise faults.pop()
        write(*given, **named)

    monkeypatch.setattr(transactions, "write_rows", fails_once)
    with capture_logs() as said:
        async with Store.opened(path, lambda _: None) as store:
            store.record_swap(swap("1", 100), "f")
            assert await asyncio.to_thread(tried.wait, 30)
            store.record_swap(swap("2", 200), "f")
    faults_told = [line["event"] for line in said if line["log_level"] == "error"]
    assert faults_told == ["records could not be written and are lost"]
    assert rows(path, "SELECT id FROM swaps") == [("2",)]
