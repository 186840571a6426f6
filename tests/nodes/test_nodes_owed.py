"""Removals that are owed outlive the daemon, a torn file and a full disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkdash.nodes.cluster import removal as owed_file
from sparkdash.nodes.cluster.removal import OwedRemoval, OwedRemovals

ONE = OwedRemoval(node="spark2", head="a", container="a-worker")
TWO = OwedRemoval(node="spark3", head="a", container="a-worker")


async def test_what_is_owed_is_known_to_the_next_daemon_until_it_is_settled(tmp_path: Path) -> None:
    file = tmp_path / "state" / "owed.json"
    changes: list[frozenset[str]] = []
    first = OwedRemovals(file)
    first.on_change = lambda: changes.append(first.nodes)
    await first.add(ONE, TWO)
    again = OwedRemovals(file)
    assert again.on("spark2") == (ONE,)
    assert again.containers("spark3") == ("a-worker",)
    await again.settle(ONE)
    assert OwedRemovals(file).nodes == {"spark3"}
    assert changes == [{"spark2", "spark3"}]


async def test_the_same_removal_is_owed_once_and_nothing_is_written_without_a_change(tmp_path: Path) -> None:
    owed = OwedRemovals(tmp_path / "owed.json")
    await owed.settle(ONE)
    assert not (tmp_path / "owed.json").exists()
    await owed.add(ONE)
    await owed.add(ONE.replace(container="other"))
    assert owed.containers("spark2") == ("other",)


async def test_a_file_that_cannot_be_read_is_no_end_of_the_daemon(tmp_path: Path) -> None:
    file = tmp_path / "owed.json"
    file.write_text("{half")
    owed = OwedRemovals(file)
    assert owed.nodes == frozenset()
    await owed.add(ONE)
    assert OwedRemovals(file).nodes == {"spark2"}


async def test_a_full_disk_keeps_nothing_from_being_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(owed_file, "_write", full)
    owed = OwedRemovals(tmp_path / "owed.json")
    await owed.add(ONE)
    assert owed.nodes == {"spark2"}
