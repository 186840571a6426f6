"""Pending removals outlive the daemon, a torn file and a full disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkdash.nodes.cluster import removal as owed_file
from sparkdash.nodes.cluster.removal import PendingRemoval, PendingRemovals

ONE = PendingRemoval(node="spark2", head="a", container="a-worker")
TWO = PendingRemoval(node="spark3", head="a", container="a-worker")


async def test_what_is_owed_is_known_to_the_next_daemon_until_it_is_settled(tmp_path: Path) -> None:
    file = tmp_path / "state" / "owed.json"
    changes: list[frozenset[str]] = []
    first = PendingRemovals(file)
    first.on_change = lambda: changes.append(first.nodes)
    await first.add(ONE, TWO)
    again = PendingRemovals(file)
    assert again.on("spark2") == (ONE,)
    assert again.containers("spark3") == ("a-worker",)
    await again.settle(ONE)
    assert PendingRemovals(file).nodes == {"spark3"}
    assert changes == [{"spark2", "spark3"}]


async def test_the_same_removal_is_owed_once_and_nothing_is_written_without_a_change(tmp_path: Path) -> None:
    pending = PendingRemovals(tmp_path / "owed.json")
    await pending.settle(ONE)
    assert not (tmp_path / "owed.json").exists()
    await pending.add(ONE)
    await pending.add(ONE.replace(container="other"))
    assert pending.containers("spark2") == ("other",)


async def test_a_file_that_cannot_be_read_is_no_end_of_the_daemon(tmp_path: Path) -> None:
    file = tmp_path / "owed.json"
    file.write_text("{half")
    pending = PendingRemovals(file)
    assert pending.nodes == frozenset()
    await pending.add(ONE)
    assert PendingRemovals(file).nodes == {"spark2"}


async def test_a_full_disk_keeps_nothing_from_being_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(owed_file, "_write", full)
    pending = PendingRemovals(tmp_path / "owed.json")
    await pending.add(ONE)
    assert pending.nodes == {"spark2"}
