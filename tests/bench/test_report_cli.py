"""`sparkdash bench show|diff|export` over run folders; no daemon runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import TypeAdapter
from typer.testing import CliRunner

from sparkdash.api.answers import BenchPlan
from sparkdash.api.requests import StartRunBody
from sparkdash.bench import processes as room
from sparkdash.bench.plan import run_plan, suites
from sparkdash.bench.processes import _ab_words, read_report_json, require_run, resume_run
from sparkdash.bench.report.report import Report
from sparkdash.bench.results import Results
from sparkdash.bench.run import Arm, CellKey, Mode, Run
from sparkdash.cli.bench.progress import plan_document
from sparkdash.cli.main import app
from sparkdash.domain.state import DaemonInfo, Snapshot
from sparkdash.errors import AdmissionError, HostError
from sparkdash.host.command import CommandResult
from sparkdash.paths import bench_dir


def test_a_plan_tells_launches_cells_time_and_the_other_suites() -> None:
    suite = suites.load_suite("smoke")
    arms = (Arm(name="a", profile="a"), Arm(name="b", profile="b"), Arm(name="c", profile="c", impossible="no head"))
    run = run_plan.new_run(suite, arms, Mode.STANDARD)
    daemon = DaemonInfo(version="1", host="h", pid=1, started_at=1.0, runtime="podman", url="u")
    world = Snapshot(seq=1, at=1.0, daemon=daemon)
    speeds = {"a": run_plan.KnownSpeeds(launch_s=60.0, decode_tok_s=50.0, source="published")}
    plan = plan_document(Results(run=run), suite, speeds, 600.0, world)
    assert BenchPlan.model_validate_json(plan.model_dump_json()) == plan
    assert plan.order == tuple(slot.arm for slot in run.order)
    assert sorted(plan.order) == ["a", "a", "a", "b", "b", "b"]
    assert (plan.cells, plan.gaps, plan.expected_s, plan.resumes) == (len(run.cells), 6 * len(run.cells), 600.0, None)
    assert [arm.impossible for arm in plan.arms] == [None, None, "no head"]
    assert (plan.arms[0].launch_s, plan.arms[1].launch_s) == (60.0, None)
    assert {"smoke", "seeds", "classes"} <= {one.name for one in plan.suites}


def test_names_of_profiles_are_never_options_of_the_command() -> None:
    wish = StartRunBody(profiles=["--yes", "b"], suite="smoke", mode="careful", reps=3)
    words = _ab_words(wish, "--dry-run")
    assert words[-3:] == ["--", "--yes", "b"]
    assert words[2:-3] == ["--suite", "smoke", "--mode", "careful", "--reps", "3", "--dry-run", "--json"]


ID = "20261121-200000-seeds"


async def test_runs_and_a_report_are_told_and_a_missing_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recorded: Callable[..., Path]
) -> None:
    """As `bench show --json` writes them; a demo asks for simulated ones only, and a name is never an option."""
    monkeypatch.setenv("SPARKDASH_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("SPARKDASH_CONFIG_DIR", str(tmp_path / "config"))
    for changes in ({}, {"id": "20261120-200000-real", "simulated": False}):
        recorded(
            bench_dir(),
            arms=[Arm(name="plain", profile="coder")],
            rates={"plain": {CellKey(suite="seeds", context=0, output=400): 60.0}},
            changes=changes,
        )
    assert [one.id for one in TypeAdapter(list[Run]).validate_json(await read_report_json(None, simulated=True))] == [
        ID
    ]
    assert Report.model_validate_json(await read_report_json("last")).run.id == ID
    with pytest.raises(AdmissionError) as caught:
        await read_report_json("--help")
    assert (caught.value.code, caught.value.status) == ("run_not_found", 404)


@pytest.mark.parametrize("run", ["", "end", "2030", "../bench", "x" * 5000, "\0"])
async def test_no_process_is_started_for_a_run_that_there_is_not(
    run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def call(*_: object, **__: object) -> CommandResult:
        raise AssertionError("a process was started")

    monkeypatch.setattr(room.command, "run_command", call)
    monkeypatch.setenv("SPARKDASH_STATE_DIR", str(tmp_path))
    (bench_dir() / ID).mkdir(parents=True)
    (bench_dir() / ID / "run.json").touch()
    for ask in (read_report_json, require_run):
        with pytest.raises(AdmissionError) as caught:
            await ask(run)
        assert (caught.value.code, caught.value.status) == ("run_not_found", 404)


async def test_a_command_that_gives_no_reason_is_told_by_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def call(*_: object, **__: object) -> CommandResult:
        return CommandResult(1, "", "Traceback\nOSError: No space left on device\n")

    monkeypatch.setattr(room.command, "run_command", call)
    monkeypatch.setenv("SPARKDASH_STATE_DIR", str(tmp_path))
    (bench_dir() / ID).mkdir(parents=True)
    (bench_dir() / ID / "run.json").touch()
    assert await resume_run("last") == "It said: OSError: No space left on device"
    with pytest.raises(HostError, match="The runs cannot be read: OSError: No space"):
        await read_report_json("last")


GRID = {
    CellKey(suite="seeds", context=context, output=output): 60.0 for context in (0, 2048) for output in (32, 150, 400)
}
ARMS = [Arm(name="plain", profile="coder"), Arm(name="eagle", profile="coder/eagle")]


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recorded: Callable[..., Path]) -> list[str]:
    monkeypatch.setenv("SPARKDASH_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("SPARKDASH_CONFIG_DIR", str(tmp_path / "config"))
    ids = ["20261120-200000-seeds", "20261121-200000-seeds"]
    for run in ids:
        recorded(bench_dir(), arms=ARMS, rates={"plain": GRID, "eagle": GRID}, changes={"id": run})
    return ids


def sparkdash(*argv: str) -> str:
    done = CliRunner().invoke(app, list(argv), catch_exceptions=False)
    assert done.exit_code == 0
    return done.output


def test_show_lists_the_runs_and_shows_one(runs: list[str]) -> None:
    assert [line.split()[0] for line in sparkdash("bench", "show").splitlines()[1:]] == runs[::-1]
    shown = sparkdash("bench", "show", "20261120", "--metric", "e2e")
    assert "SIMULATED" in shown
    assert "60.0 [60.0, 60.0]" in shown
    assert json.loads(sparkdash("bench", "show", "last", "--json"))["run"]["id"] == runs[1]


def test_a_run_that_is_not_understood_keeps_nobody_from_the_others(runs: list[str]) -> None:
    odd = bench_dir() / "20991231-000000-x"
    odd.mkdir()
    (odd / "run.json").write_text('{"format": 99}')
    done = CliRunner().invoke(app, ["bench", "show", "--json"], catch_exceptions=False)
    assert [one["id"] for one in json.loads(done.stdout)] == runs[::-1]
    assert "20991231-000000-x/run.json is no run that this sparkdash understands" in done.stderr


def test_export_writes_a_file_or_stdout(runs: list[str], tmp_path: Path) -> None:
    sparkdash("bench", "export", "last", "-o", str(tmp_path / "out"))
    text = (tmp_path / "out").read_text()
    assert text.startswith("# eagle against plain: seeds on rehearsal")
    assert sparkdash("bench", "export", runs[1]) == text


def test_what_is_asked_wrongly_is_answered_in_words(runs: list[str]) -> None:
    for argv, words in (
        (("show", "1999"), "There is no run 1999"),
        (("show", "last", "--metric", "tpot"), "The figure tpot does not exist"),
    ):
        with pytest.raises(AdmissionError, match=words):
            CliRunner().invoke(app, ["bench", *argv], catch_exceptions=False)
    assert runs
