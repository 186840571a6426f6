"""A measurement that begins beside an unfinished one resumes it, or names the command that completes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkdash.bench import run_folder
from sparkdash.bench.plan import run_plan, suites
from sparkdash.bench.run import Mode, Run
from sparkdash.cli.bench.measure import run_to_resume

ARMS = run_plan.arms_of(["http://127.0.0.1:1", "http://127.0.0.1:2"], {})


def planned(mode: Mode, seed: int = 1, arms: int = 2) -> Run:
    """A run of the same suite."""
    return run_plan.new_run(suites.load_suite("smoke"), ARMS[:arms], mode, seed=seed)


@pytest.fixture
def stopped(own_folders: Path) -> Path:
    """An unfinished run in mode standard."""
    assert own_folders.is_dir()
    return run_folder.create_run_folder(planned(Mode.STANDARD))


def test_the_same_question_is_resumed(stopped: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_to_resume(planned(Mode.STANDARD), fresh=False) == stopped
    assert f"Resuming {stopped.name}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("run", "words"), [({"mode": Mode.CAREFUL}, "the mode"), ({"mode": Mode.STANDARD, "seed": 2}, "the seed")]
)
def test_another_question_about_the_same_profiles_names_what_is_unfinished(
    stopped: Path, capsys: pytest.CaptureFixture[str], run: dict[str, Mode], words: str
) -> None:
    assert run_to_resume(planned(**run), fresh=False) is None
    said = " ".join(capsys.readouterr().err.split())
    assert f"{stopped.name} measures the same profiles and is unfinished" in said
    assert f"It differs in {words}" in said
    assert f"sparkdash bench resume {stopped.name}" in said


def test_a_fresh_run_names_the_unfinished_one_too(stopped: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_to_resume(planned(Mode.STANDARD), fresh=True) is None
    assert f"sparkdash bench resume {stopped.name}" in " ".join(capsys.readouterr().err.split())


def test_other_profiles_are_no_concern(stopped: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert stopped.is_dir()
    assert run_to_resume(planned(Mode.STANDARD, arms=1), fresh=False) is None
    assert capsys.readouterr().err == ""
