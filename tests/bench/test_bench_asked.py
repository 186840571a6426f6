"""The runs as a daemon tells them: read by a process of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from sparkdash.bench import processes as room
from sparkdash.bench.processes import read_report_json, require_run, resume_run
from sparkdash.bench.report.report import Report
from sparkdash.bench.run import Arm, CellKey, Run
from sparkdash.errors import AdmissionError, HostError
from sparkdash.host.command import CommandResult
from sparkdash.paths import bench_dir

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
    """`GET /api/bench/end` is a name of one, too."""

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
    """A run that did not go on was not read in vain: it says something else."""

    async def call(*_: object, **__: object) -> CommandResult:
        return CommandResult(1, "", "Traceback\nOSError: No space left on device\n")

    monkeypatch.setattr(room.command, "run_command", call)
    monkeypatch.setenv("SPARKDASH_STATE_DIR", str(tmp_path))
    (bench_dir() / ID).mkdir(parents=True)
    (bench_dir() / ID / "run.json").touch()
    assert await resume_run("last") == "It said: OSError: No space left on device"
    with pytest.raises(HostError, match="The runs cannot be read: OSError: No space"):
        await read_report_json("last")
