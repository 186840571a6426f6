"""The runs as a daemon tells them: read by a process of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from sparkdash.bench.asked import asked
from sparkdash.bench.folder import bench_dir
from sparkdash.bench.report.report import Report
from sparkdash.bench.run import Arm, CellKey, Run
from sparkdash.errors import AdmissionError

ID = "20261121-200000-seeds"


async def test_runs_and_a_report_are_told_and_a_missing_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recorded: Callable[..., Path]
) -> None:
    """As `bench show --json` writes them; a name is never an option."""
    monkeypatch.setenv("SPARKDASH_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("SPARKDASH_CONFIG_DIR", str(tmp_path / "config"))
    recorded(
        bench_dir(),
        arms=[Arm(name="plain", profile="coder")],
        rates={"plain": {CellKey(suite="seeds", context=0, output=400): 60.0}},
    )
    assert [one.id for one in TypeAdapter(list[Run]).validate_json(await asked(None))] == [ID]
    assert Report.model_validate_json(await asked("last")).run.id == ID
    for name in ("1999", "--help"):
        with pytest.raises(AdmissionError) as caught:
            await asked(name)
        assert caught.value.code == "run_not_found"
        assert caught.value.status == 404
