"""Files of earlier releases."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from stored import VERSION_1, load, rows

from sparkdash.domain.lease import Request, RequestState
from sparkdash.store import Store, past

VERSION_3 = """
ALTER TABLE swaps ADD COLUMN kin TEXT;
ALTER TABLE swaps ADD COLUMN steps TEXT;
PRAGMA user_version = 3;
"""
"""What the one before reasoning tokens made of it, as far as it concerns what is there."""


async def test_a_database_of_an_older_version_has_no_trend(tmp_path: Path) -> None:
    """A daemon of that version may still write it."""
    path = tmp_path / "sparkdash.db"
    database = sqlite3.connect(path)
    database.executescript(VERSION_1)
    database.close()
    assert past.read_loads(path) == ()


@pytest.mark.parametrize("more", ["", VERSION_3])
async def test_a_file_of_an_older_version_keeps_its_rows(tmp_path: Path, more: str) -> None:
    """Brought up to date in place, once; what it learned counts on."""
    path = tmp_path / "sparkdash.db"
    database = sqlite3.connect(path)
    database.executescript(VERSION_1 + more)
    database.close()
    for _ in range(2):
        async with Store.opened(path, lambda _: None) as store:
            assert store.expected_s("f") == 70
            assert store.steps("f") == ()
            store.record_load(load("1", 60), "a", "f")
            store.record_request(
                Request(
                    id="s", client="c", profile="a", route="/v1", state=RequestState.DONE, started_at=2.0, error="e",
                    reasoning_tokens=7, node="spark2", completion_estimate=5,
                )
            )  # fmt: skip
    assert rows(path, "PRAGMA user_version") == [(13,)]
    assert rows(path, "SELECT id, kin, steps, nodes FROM swaps") == [("1", None, None, None)]
    columns = "SELECT id, error, reasoning_tokens, node, completion_estimate FROM requests ORDER BY id"
    assert rows(path, columns) == [("r", None, None, None, None), ("s", "e", 7, "spark2", 5)]
    assert rows(path, "SELECT count(*) FROM loads") == [(1,)]
