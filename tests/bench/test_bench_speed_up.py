"""Speed of a speculating profile over its plain one, as runs on disk measured it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from sparkdash.bench import processes
from sparkdash.bench.results import Results
from sparkdash.bench.run import Arm, CellKey, Mode
from sparkdash.bench.speed_ups import read_speed_ups, speed_ups

Rehearse = Callable[..., Results]
PLAIN, EAGLE = Arm(name="plain", profile="coder"), Arm(name="eagle", profile="coder/eagle")
ALONE = {CellKey(suite="seeds", context=context, output=400): 50.0 for context in (0, 2048)}
CROWD = {CellKey(suite="seeds", context=0, output=150, concurrency=4): 20.0}
MODEL = {"model": "example/coder", "model_revision": "abc"}
TOLD = {"plain": MODEL, "eagle": {**MODEL, "speculation": "eagle3 k=1", "fingerprint": "feed"}}


def times(factor: float) -> dict[CellKey, float]:
    """The cells of one request, so much faster, and those of several no faster at all."""
    return {key: rate * factor for key, rate in ALONE.items()} | CROWD


def asked(**changes: Any) -> dict[str, Any]:
    """A run whose speculating arm is 1.36 times as fast."""
    rates = {"plain": ALONE | CROWD, "eagle": times(1.36)}
    return {"arms": [PLAIN, EAGLE], "rates": rates, "provenance": TOLD, "wobble": 0.001, **changes}


def test_the_cells_of_one_request_give_the_ratio(rehearse: Rehearse) -> None:
    """Of the profile that speculates, with the run that measured it; a simulated one says so."""
    (found,) = speed_ups(rehearse(**asked()))
    assert found.ratio == pytest.approx(1.36, rel=0.002)
    assert (found.profile, found.fingerprint, found.plain, found.cells) == ("coder/eagle", "feed", "coder", 2)
    assert (found.run, found.simulated) == ("20261121-200000-seeds", True)
    assert found.measured_at == datetime(2026, 11, 21, 20, 0, tzinfo=UTC).timestamp()


def test_the_baseline_may_be_the_one_that_speculates(rehearse: Rehearse) -> None:
    """The ratio is still that of speculation over none."""
    (found,) = speed_ups(rehearse(**asked(arms=[EAGLE, PLAIN])))
    assert (found.profile, found.plain) == ("coder/eagle", "coder")
    assert found.ratio == pytest.approx(1.36, rel=0.002)


def test_a_loss_is_told_too(rehearse: Rehearse) -> None:
    """Speculation that does not pay is below one."""
    (found,) = speed_ups(rehearse(**asked(rates={"plain": ALONE, "eagle": times(0.8)})))
    assert found.ratio == pytest.approx(0.8, rel=0.002)


@pytest.mark.parametrize(
    "changes",
    [
        {"mode": Mode.SCREEN},
        {"wobble": 0.6, "reps": 1},
        {"provenance": {**TOLD, "plain": {**MODEL, "model": "example/other"}}},
        {"provenance": {**TOLD, "plain": {**MODEL, "model_revision": "def"}}},
        {"provenance": {"plain": {}, "eagle": {"speculation": "eagle3 k=1"}}},
        {"provenance": {"plain": MODEL, "eagle": MODEL}},
        {"provenance": {"plain": TOLD["eagle"], "eagle": TOLD["eagle"]}},
        {"arms": [PLAIN, Arm(name="eagle", profile="coder/eagle", parameters={"k": "3"})]},
        {"rates": {"plain": CROWD, "eagle": CROWD}},
        {"rates": {"plain": ALONE}},
    ],
    ids=["screen", "noise", "model", "revision", "unknown", "plain", "both", "swept", "crowd", "missing"],
)
def test_what_no_run_measured_is_not_told(rehearse: Rehearse, changes: dict[str, Any]) -> None:
    """A screen, noise, another model or revision, no pair, a sweep's arm, several requests at once, blank cells."""
    assert speed_ups(rehearse(**asked(**changes))) == ()


def test_the_newest_run_that_claims_something_counts(recorded: Callable[..., Path], tmp_path: Path) -> None:
    """A damaged run and a screen tell nothing; simulated runs stay apart from real ones."""
    recorded(tmp_path, **asked())
    later = {"id": "20261122-200000-seeds"}
    recorded(tmp_path, **asked(rates={"plain": ALONE, "eagle": times(1.5)}, changes=later))
    recorded(tmp_path, **asked(mode=Mode.SCREEN, changes={"id": "20261123-200000-seeds"}))
    (tmp_path / "20261124-200000-seeds").mkdir()
    (tmp_path / "20261124-200000-seeds" / "run.json").write_text("{")
    (found,) = read_speed_ups(simulated=True, root=tmp_path)
    assert (found.run, round(found.ratio, 1)) == (later["id"], 1.5)
    assert read_speed_ups(simulated=False, root=tmp_path) == ()


async def test_a_process_of_its_own_reads_them(
    recorded: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And none is started where there is no run."""
    monkeypatch.setenv("SPARKDASH_STATE_DIR", str(tmp_path))
    assert await processes.read_speed_ups(simulated=True) == ()
    recorded(processes.bench_dir(), **asked())
    (found,) = await processes.read_speed_ups(simulated=True)
    assert found.profile == "coder/eagle"
