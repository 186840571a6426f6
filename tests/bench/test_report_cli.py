"""`sparkdash bench show|diff|export` over run folders; no daemon runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sparkdash.bench.run import Arm, CellKey
from sparkdash.cli.main import app
from sparkdash.errors import AdmissionError
from sparkdash.paths import bench_dir

GRID = {
    CellKey(suite="seeds", context=context, output=output): 60.0 for context in (0, 2048) for output in (32, 150, 400)
}
ARMS = [Arm(name="plain", profile="coder"), Arm(name="eagle", profile="coder/eagle")]


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recorded: Callable[..., Path]) -> list[str]:
    """Two runs in this user's folder."""
    monkeypatch.setenv("SPARKDASH_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("SPARKDASH_CONFIG_DIR", str(tmp_path / "config"))
    ids = ["20261120-200000-seeds", "20261121-200000-seeds"]
    for run in ids:
        recorded(bench_dir(), arms=ARMS, rates={"plain": GRID, "eagle": GRID}, changes={"id": run})
    return ids


def sparkdash(*argv: str) -> str:
    """What it prints."""
    done = CliRunner().invoke(app, list(argv), catch_exceptions=False)
    assert done.exit_code == 0
    return done.output


def test_show_lists_the_runs_and_shows_one(runs: list[str]) -> None:
    """The newest first; a run by the beginning of its id."""
    assert [line.split()[0] for line in sparkdash("bench", "show").splitlines()[1:]] == runs[::-1]
    shown = sparkdash("bench", "show", "20261120", "--metric", "e2e")
    assert "SIMULATED" in shown
    assert "60.0 [60.0, 60.0]" in shown
    assert json.loads(sparkdash("bench", "show", "last", "--json"))["run"]["id"] == runs[1]


def test_a_run_that_is_not_understood_keeps_nobody_from_the_others(runs: list[str]) -> None:
    """It is named, with the reason."""
    odd = bench_dir() / "20991231-000000-x"
    odd.mkdir()
    (odd / "run.json").write_text('{"format": 99}')
    for command in ("show", "list"):
        done = CliRunner().invoke(app, ["bench", command, "--json"], catch_exceptions=False)
        told = [one if command == "show" else one["run"] for one in json.loads(done.stdout)]
        assert [one["id"] for one in told] == runs[::-1]
        assert "20991231-000000-x/run.json is no run that this sparkdash understands" in done.stderr


def test_a_model_goes_with_a_url() -> None:
    """A profile has its own."""
    done = CliRunner().invoke(app, ["bench", "coder", "--model", "x"])
    assert done.exit_code == 2
    assert "use --model with --url only" in done.output


def test_diff_sets_two_runs_side_by_side(runs: list[str]) -> None:
    """Nothing is claimed of them."""
    shown = sparkdash("bench", "diff", *runs)
    assert "A change between two runs is no verdict" in shown
    assert "+0.0%" in shown


@pytest.mark.parametrize(
    ("form", "begins"), [("md", "# seeds on rehearsal"), ("csv", "model,test_name,"), ("json", '{\n  "format": 1')]
)
def test_export_writes_a_file_or_stdout(runs: list[str], tmp_path: Path, form: str, begins: str) -> None:
    """The same text either way."""
    sparkdash("bench", "export", "last", "--format", form, "-o", str(tmp_path / "out"))
    text = (tmp_path / "out").read_text()
    assert text.startswith(begins)
    assert sparkdash("bench", "export", runs[1], "--format", form) == text


def test_what_is_asked_wrongly_is_answered_in_words(runs: list[str]) -> None:
    """No such run, and no such figure."""
    for argv, words in (
        (("show", "1999"), "There is no run 1999"),
        (("show", "last", "--metric", "tpot"), "The figure tpot does not exist"),
    ):
        with pytest.raises(AdmissionError, match=words):
            CliRunner().invoke(app, ["bench", *argv], catch_exceptions=False)
    assert runs
