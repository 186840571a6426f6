"""A sweep's profiles among the owner's: written, kept while they are wanted, and never mixed up with the owner's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sparkdash import paths
from sparkdash.bench.plan import sweep
from sparkdash.bench.run import Arm, CellKey
from sparkdash.errors import AdmissionError

FAMILY = "sweep-a-max-num-seqs"
TEXT = f"profile: {FAMILY}\nengine: sim\n"
ARMS = [Arm(name="1", profile=f"{FAMILY}/1", parameters={"max-num-seqs": "1"}, swept="a")]


@pytest.fixture
def left() -> Path:
    """What a measurement that was killed before its run began left behind."""
    with sweep.sweep_profiles(FAMILY, TEXT) as file:
        pass
    assert file.read_text().endswith(TEXT)
    return file


def test_what_a_killed_one_left_goes_at_the_next_start(left: Path) -> None:
    """Not before it is free: another may be asking whether to begin."""
    with sweep.sweep_profiles(FAMILY, TEXT):
        sweep.delete_stale_files()
        assert left.exists()
    sweep.delete_stale_files()
    assert not left.exists()


@pytest.mark.parametrize("ended", [False, True])
def test_a_run_that_was_begun_wants_its_profiles_until_it_is_whole(
    left: Path, recorded: Callable[..., Path], *, ended: bool
) -> None:
    """It goes on after a crash of the box as well."""
    rates = {"1": {CellKey(suite="seeds", context=0, output=32): 60.0}}
    changes = {"ended_at": "2026-11-21T21:00:00Z"} if ended else {}
    recorded(paths.bench_dir(), arms=ARMS, rates=rates, changes=changes)
    sweep.delete_stale_files()
    assert left.exists() is not ended


@pytest.mark.parametrize("name", [FAMILY, "mine"])
def test_the_owners_files_stay(name: str) -> None:
    """Of whatever name; one that was made of a sweep's has another."""
    own = sweep.sweep_file_path(name)
    own.parent.mkdir(parents=True)
    own.write_text(TEXT if name == FAMILY else sweep.HEAD + TEXT)
    sweep.delete_stale_files()
    assert not sweep.delete_sweep_file(name)
    assert own.exists()
    with pytest.raises(AdmissionError, match="a file of your own"), sweep.sweep_profiles(name, TEXT):
        raise AssertionError
    assert TEXT in own.read_text()
