"""Requests, kills and servers in use are kept over restarts."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from stored import asked, rows, swap

from sparkdash.domain.lease import Request, RequestState
from sparkdash.domain.memory import GuardKill
from sparkdash.store import Store, schema, transactions
from sparkdash.store import store as store_module
from sparkdash.store.rows import Row
from sparkdash.store.schema import REQUESTS_KEPT
from sparkdash.units import GIB


async def test_requests_are_kept_with_their_figures(tmp_path: Path) -> None:
    """All that was recorded is in the file when the store is closed."""
    path = tmp_path / "sparkdash.db"
    async with Store.opened(path, lambda _: None) as store:
        for n in range(50):
            request = Request(
                id=str(n),
                client="curl",
                profile="a",
                route="/v1/chat/completions",
                state=RequestState.DONE,
                started_at=float(n),
                completion_tokens=n,
                ttft_s=0.5,
            )
            store.record_request(request)
    assert rows(path, "SELECT count(*), sum(completion_tokens), max(ttft_s) FROM requests") == [(50, 1225, 0.5)]
    assert rows(path, "PRAGMA journal_mode") == [("wal",)]


async def test_requests_wait_for_one_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A moment, or until something is written that may not wait; what breaks in their company does not take them along."""
    path = tmp_path / "sparkdash.db"

    def request(id_: str) -> Request:
        return Request(id=id_, client="c", profile="a", route="/v1", state=RequestState.DONE, started_at=1)

    async with Store.opened(path, lambda _: None) as store:
        monkeypatch.setattr("sparkdash.store.store.TOGETHER_S", 0.0)
        store.record_request(request("1"))
        async with asyncio.timeout(60):
            while not rows(path, "SELECT id FROM requests"):  # noqa: ASYNC110 - a file cannot tell
                await asyncio.sleep(0)
        monkeypatch.setattr("sparkdash.store.store.TOGETHER_S", 1e6)
        store.record_request(request("2"))
        store.record_request(request("3"))
        rows(path, "DROP TABLE swaps")
        store.record_swap(swap("1", 100), "f")
    assert rows(path, "SELECT id FROM requests") == [("1",), ("2",), ("3",)]


async def test_a_transaction_has_an_end_also_when_requests_never_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is recorded while the thread writes is of the next one: whoever kills the daemon takes along no more."""
    path, kept = tmp_path / "sparkdash.db", list[int]()
    loop, done, write = asyncio.get_running_loop(), asyncio.Event(), transactions._write_requests

    async def record(number: int) -> None:
        store.record_request(
            Request(id=str(number), client="c", profile="a", route="/v1", state=RequestState.DONE, started_at=1)
        )

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


async def test_what_the_guard_killed_is_kept(tmp_path: Path) -> None:
    """When, whom, and at which figures."""
    path = tmp_path / "sparkdash.db"
    async with Store.opened(path, lambda _: None) as store:
        store.record_kill(GuardKill(at=5.0, profile="a", available=4 * GIB, processes=3, reason="It was too much."))
    assert rows(path, "SELECT * FROM kills") == [(5.0, "a", 4 * GIB, None, 3, "It was too much.")]


async def test_servers_in_use_are_known_to_the_next_daemon(tmp_path: Path) -> None:
    """Each with the launch that it is; one that is no longer used is forgotten."""
    path = tmp_path / "sparkdash.db"
    async with Store.opened(path, lambda _: None) as store:
        assert store.attached == {}
        store.record_attached("studio", "f1")
        store.record_attached("box", "f2")
        store.record_attached("studio", "f3")
        store.record_attached("box", None)
    async with Store.opened(path, lambda _: None) as store:
        assert store.attached == {"studio": "f3"}


async def test_only_the_last_requests_are_kept_from_one_daemon_to_the_next(tmp_path: Path) -> None:
    """By the order in which they were written: one that a wrong clock dated into the future does not outlive the others."""
    path = tmp_path / "s.db"
    async with Store.opened(path, [].append):
        pass
    with closing(sqlite3.connect(path)) as database:
        database.execute(
            f"WITH n(n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM n WHERE n < {REQUESTS_KEPT + 2})"
            " INSERT INTO requests (id, at, profile, client, route, state)"
            " SELECT printf('%06d', n), -n, 'a', 'c', '/v1', 'done' FROM n"
        )
        database.commit()
    async with Store.opened(path, [].append):
        pass
    assert rows(path, "SELECT count(*), min(id) FROM requests") == [(REQUESTS_KEPT, "000003")]


async def test_only_the_last_requests_are_kept_while_a_daemon_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that runs for months holds no more rows than one that was just started."""
    path = tmp_path / "s.db"
    monkeypatch.setattr(transactions, "TRIM_EVERY", 10)
    async with Store.opened(path, [].append) as store:
        with closing(sqlite3.connect(path)) as database:
            for table, kept, columns, values in (
                ("requests", REQUESTS_KEPT, "id, at, profile, client, route, state", "n, n, 'a', 'c', '/v1', 'done'"),
                ("kills", schema.KILLS_KEPT, "at, profile, available_bytes, processes, reason", "n, 'a', 1, 1, 'r'"),
            ):
                database.execute(
                    f"WITH n(n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM n WHERE n < {kept})"
                    f" INSERT INTO {table} ({columns}) SELECT {values} FROM n"
                )
            database.commit()
        for id_ in range(10):
            store.record_request(asked(f"last {id_}"))
            store.record_kill(GuardKill(at=2.0, profile="a", available=1, pressure=None, processes=1, reason="r"))
    assert rows(path, "SELECT count(*) FROM requests") == [(REQUESTS_KEPT,)]
    assert rows(path, "SELECT count(*) FROM requests WHERE id LIKE 'last%'") == [(10,)]
    assert rows(path, "SELECT count(*) FROM kills") == [(schema.KILLS_KEPT,)]
