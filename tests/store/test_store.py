"""What is kept over restarts, and that a bad file never stops the service."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import pytest

from sparkdash.domain.engine import Failure
from sparkdash.domain.event import Fact, Notice
from sparkdash.domain.lease import Request, RequestState
from sparkdash.domain.swap import Swap, SwapCause, SwapOutcome, SwapPhase
from sparkdash.store import Store


def swap(id_: str, load_s: float, *, drain_s: float = 0.0, outcome: SwapOutcome = SwapOutcome.DONE) -> Swap:
    """One that ended."""
    return Swap(
        id=id_,
        target="a",
        evict=(),
        cause=SwapCause.REQUEST,
        phase=SwapPhase.WARM,
        started_at=float(id_),
        phase_at=2.0,
        ended_at=3.0,
        outcome=outcome,
        stage_s={SwapPhase.DRAIN: drain_s, SwapPhase.LOAD: load_s},
        failure=Failure(code="engine_crash", message="It died.") if outcome is SwapOutcome.FAILED else None,
    )


def rows(path: Path, query: str) -> list[tuple[object, ...]]:
    """What is in the file."""
    database = sqlite3.connect(path)
    try:
        return database.execute(query).fetchall()
    finally:
        database.close()


async def test_the_expected_time_is_the_median_of_the_last_swaps_and_outlives_a_restart(tmp_path: Path) -> None:
    """Drains and failures do not count; nothing is known before the first."""
    path = tmp_path / "new" / "sparkdash.db"
    async with Store.opened(path, lambda _: None) as store:
        assert store.expected_s("f") is None
        store.record_swap(swap("1", 100, drain_s=500), "f")
        store.record_swap(swap("2", 80), "f")
        store.record_swap(swap("3", 1, outcome=SwapOutcome.FAILED), "f")
        store.record_swap(swap("4", 90), "f")
        assert store.expected_s("f") == 90
        assert store.expected_s("other") is None
    async with Store.opened(path, lambda _: None) as store:
        assert store.expected_s("f") == 90
        for n in range(5, 10):
            store.record_swap(swap(str(n), 10), "f")
        assert store.expected_s("f") == 10
    kept = rows(path, "SELECT outcome, failure, stage_s FROM swaps WHERE id = '3'")
    assert kept == [("failed", "engine_crash", '{"drain": 0.0, "load": 1.0}')]


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


@pytest.mark.parametrize("damage", ["garbage", "folder", "newer", "no folder"])
async def test_a_database_that_cannot_be_used_is_told_and_gone_without(tmp_path: Path, damage: str) -> None:
    """One notice that names the file and the reason; recording and asking still work, in memory."""
    path = tmp_path / "sparkdash.db"
    match damage:
        case "garbage":
            path.write_bytes(b"this is not a database, whatever its name says" * 100)
        case "folder":
            path.mkdir()
        case "newer":
            database = sqlite3.connect(path)
            database.execute("PRAGMA user_version = 99")
            database.close()
        case _:
            (tmp_path / "file").write_text("")
            path = tmp_path / "file" / "sparkdash.db"
    told: list[Fact] = []
    async with Store.opened(path, told.append) as store:
        store.record_swap(swap("1", 100), "f")
        assert store.expected_s("f") == 100
    (notice,) = told
    assert isinstance(notice, Notice)
    assert notice.code == "store_unusable"
    assert str(path) in notice.text


async def test_a_database_that_breaks_later_is_told_once(tmp_path: Path) -> None:
    """Its tables vanish under it; serving goes on."""
    path = tmp_path / "sparkdash.db"
    told: list[Fact] = []
    async with Store.opened(path, told.append) as store:
        rows(path, "DROP TABLE swaps")
        for n in range(3):
            store.record_swap(swap(str(n), 100), "f")
        assert store.expected_s("f") == 100
    assert [fact.code for fact in told if isinstance(fact, Notice)] == ["store_unusable"]


async def test_the_database_lives_in_one_named_thread_that_ends_with_it(tmp_path: Path) -> None:
    """So that a stuck disk shows by name and never blocks the loop."""
    async with Store.opened(tmp_path / "sparkdash.db", lambda _: None):
        assert [t.name for t in threading.enumerate() if t.name.startswith("sqlite")] == ["sqlite_0"]
    assert not [t for t in threading.enumerate() if t.name.startswith("sqlite")]
