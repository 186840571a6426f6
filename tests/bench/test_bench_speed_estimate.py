"""The time in a first plan: from earlier runs and published figures, else from the profile's size, and marked so."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from sparkdash.bench.plan import run_plan, suites
from sparkdash.bench.plan.run_plan import KnownSpeeds, RunTarget
from sparkdash.bench.plan.speed_estimate import complete
from sparkdash.bench.results import Results
from sparkdash.bench.run import Arm, CellKey, Mode, Run
from sparkdash.cli.bench import known_speeds, progress
from sparkdash.domain.profile import EngineKind, ProfileSummary
from sparkdash.domain.state import DaemonInfo, Snapshot
from sparkdash.paths import bench_dir
from sparkdash.units import GIB

CELL = CellKey(suite="seeds", context=0, output=400)


def summary(
    name: str, needs_gib: float | None = None, published: float | None = None, about: str = ""
) -> ProfileSummary:
    """A profile as lists have it."""
    return ProfileSummary(
        name=name, about=about, engine=EngineKind.VLLM, engine_version=None, image=None, serves=(), context=None,
        needs_bytes=None if needs_gib is None else int(needs_gib * GIB), nodes=1, cannot_run=None, nearest=None,
        published_decode_tok_s=published, published_note=None, speculation=None, fingerprint="f", simulated=False,
    )  # fmt: skip


def test_a_variant_takes_its_familys_published_rate() -> None:
    """The base's before another variant's; the start is estimated by its size."""
    mine = summary("coder/turbo2", 20)
    others = (
        mine,
        summary("coder", published=65.0),
        summary("coder/eagle3", published=68.0),
        summary("other", published=9.0),
    )
    found = complete(KnownSpeeds(), mine, others)
    assert (found.decode_tok_s, found.source, found.estimated) == (65.0, "published of coder", True)
    assert found.launch_s == pytest.approx(180)


@pytest.mark.parametrize(
    ("name", "needs_gib", "low", "high"),
    [("qwen3-coder-30b-a3b", 27, 40, 60), ("qwen3.6-27b", 25, 4, 7), ("auto-sized", 25, None, None), ("gemma-4-26b-a4b", None, None, None)],
)  # fmt: skip
def test_a_profile_without_figures_is_estimated_by_what_a_token_reads(
    name: str, needs_gib: float | None, low: float | None, high: float | None
) -> None:
    """A mixture of experts reads its active share; a name without sizes gives no estimate."""
    found = complete(KnownSpeeds(), summary(name, needs_gib), ())
    if low is None or high is None:
        assert (found.decode_tok_s, found.source) == (None, None)
    else:
        assert low <= (found.decode_tok_s or 0) <= high
        assert "estimated" in (found.source or "")


def test_what_is_known_stays() -> None:
    """Only the start is estimated."""
    known = KnownSpeeds(decode_tok_s=50.0, source="seen here")
    found = complete(known, summary("a-7b", 10, published=9.0), ())
    assert (found.decode_tok_s, found.source, found.launch_s, found.estimated) == (50.0, "seen here", 120.0, True)


def planned(arms: tuple[Arm, ...], **where: Any) -> Run:
    return run_plan.new_run(suites.load_suite("smoke"), arms, Mode.SCREEN, where=RunTarget(**where))


async def test_an_earlier_run_tells_more_than_a_publication(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recorded: Callable[..., Path]
) -> None:
    """Its own rate and start; of a simulated run nothing is taken over to a real one."""
    monkeypatch.setenv("SPARKDASH_STATE_DIR", str(tmp_path / "state"))
    real = {"simulated": False, "id": "20261120-200000-seeds"}
    told = {"c": {"startup_s": 77.0}}
    recorded(
        bench_dir(), arms=[Arm(name="c", profile="coder")], rates={"c": {CELL: 60.0}}, provenance=told, changes=real
    )
    recorded(bench_dir(), arms=[Arm(name="c", profile="coder")], rates={"c": {CELL: 600.0}})
    arm = Arm(name="coder", profile="coder")
    found = (await known_speeds.arm_speeds(planned((arm,)), None, None))["coder"]
    assert found.decode_tok_s == pytest.approx(399 / (0.9 * 400 / 60))
    assert (found.launch_s, found.source, found.estimated) == (77.0, "measured in 20261120-200000-seeds", False)
    other = (await known_speeds.arm_speeds(planned((Arm(name="x", profile="x"),)), None, None))["x"]
    assert other == KnownSpeeds()


async def test_a_url_needs_no_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recorded: Callable[..., Path]
) -> None:
    """The second plan of a server knows its time."""
    monkeypatch.setenv("SPARKDASH_STATE_DIR", str(tmp_path / "state"))
    url = "http://127.0.0.1:8000"
    recorded(
        bench_dir(),
        arms=[Arm(name=url, profile=url)],
        rates={url: {CELL: 60.0}},
        changes={"simulated": False, "target": "url"},
    )
    run = planned((Arm(name=url, profile=url),), target="url")
    speeds = await known_speeds.arm_speeds(run, None, None)
    assert (speeds[url].launch_s, speeds[url].estimated) == (0.0, False)
    assert run_plan.expected_s(Results(run=run).gaps(), speeds) is not None


def test_an_estimate_is_marked_in_the_plan(capsys: pytest.CaptureFixture[str]) -> None:
    """With a tilde, and the words what it is."""
    run = planned((Arm(name="coder/turbo2", profile="coder/turbo2"),))
    info = DaemonInfo(version="0", host="h", pid=1, started_at=datetime.now(UTC).timestamp(), runtime="none", url="u")
    mine = summary("coder/turbo2", 20)
    world = Snapshot(seq=0, at=0, daemon=info, profiles=(mine, summary("coder", published=65.0)))
    speeds = {"coder/turbo2": complete(KnownSpeeds(), mine, world.profiles)}
    expected = run_plan.expected_s(Results(run=run).gaps(), speeds)
    progress.print_plan(Results(run=run), suites.load_suite("smoke"), speeds, expected, world)
    told = " ".join(capsys.readouterr().err.split())
    assert "Expected time: ~" in told
    assert "published of coder; ~ is an estimate" in told
