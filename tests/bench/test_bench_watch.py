"""Verdicts on a profile's newest build from its recorded runs: slower, faster, or neither shown, and the way back."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from sparkdash.bench.judge.metrics import BenchMetric
from sparkdash.bench.results import Results
from sparkdash.bench.run import Arm, CellKey, Host, Mode
from sparkdash.bench.watch import Build, Outlook, Watch, pinned_image, watch_profile
from sparkdash.cli.main import app
from sparkdash.paths import bench_dir
from tests.bench.conftest import evening

CELLS = [CellKey(suite="seeds", context=context, output=400) for context in (0, 2048)]
IMAGE = "registry.example:5000/vllm:26.04"
OLD = {"image": IMAGE, "image_digest": f"sha256:{'a' * 64}", "driver": "580.95", "kernel": "6.11.0"}
NEW = {**OLD, "image_digest": f"sha256:{'b' * 64}", "driver": "581.10"}
CODER = Arm(name="coder", profile="coder")


def measured(number: int, build: Mapping[str, Any], factor: float = 1.0, **changes: Any) -> dict[str, Any]:
    """Rehearse a run of that evening; half a per cent up or down in turn."""
    rate = 60.0 * factor * (1.005 if number % 2 else 0.995)
    rates = {"coder": dict.fromkeys(CELLS, rate)}
    given = {"arms": [CODER], "rates": rates, "provenance": {"coder": build}, "mode": Mode.SCREEN}
    return {**given, **evening(number, **changes)}


def watched(
    rehearse: Callable[..., Results], nights: Sequence[dict[str, Any]], metric: BenchMetric = BenchMetric.DECODE
) -> Watch:
    return watch_profile([rehearse(**one) for one in nights], "coder", metric)


@pytest.mark.parametrize(("factor", "outlook"), [(0.9, Outlook.SLOWER), (1.1, Outlook.FASTER), (0.97, Outlook.STEADY)])
def test_large_changes_between_the_last_two_builds_are_mentioned(
    rehearse: Callable[..., Results], factor: float, outlook: Outlook
) -> None:
    """Four evenings before and two after the pull."""
    found = watched(rehearse, [*(measured(n, OLD) for n in range(4)), *(measured(n, NEW, factor) for n in (4, 5))])
    assert found.change is not None
    assert found.change.outlook is outlook
    assert found.change.delta == pytest.approx(factor - 1, abs=0.001)
    assert [len(one.evenings) for one in found.periods] == [4, 2]


def test_a_time_that_grows_looks_slower(rehearse: Callable[..., Results]) -> None:
    found = watched(rehearse, [measured(0, OLD), measured(2, NEW, 0.8)], BenchMetric.TTFT)
    assert found.change is not None
    assert found.change.outlook is Outlook.SLOWER


def test_other_work_and_other_boxes_are_left_out(rehearse: Callable[..., Results]) -> None:
    """With reasoning on, or on another box, the figures are others'; real runs do not stand beside simulated ones."""
    nights = [
        measured(0, OLD | {"thinking": True}, 0.5),
        measured(1, OLD, 0.5, host=Host(name="another")),
        measured(2, OLD | {"engine": "vllm"}, 0.5, simulated=True),
        measured(3, OLD | {"thinking": False}),
        measured(5, NEW | {"thinking": False}),
    ]
    found = watched(rehearse, nights)
    assert found.left_out == 3
    assert [one.evenings[0].run for one in found.periods] == ["20261124-200000-seeds", "20261126-200000-seeds"]


def test_builds_of_different_suites_are_not_known_to_differ(rehearse: Callable[..., Results]) -> None:
    found = watched(rehearse, [measured(0, OLD), measured(2, NEW, 0.5, suite_hash="beef" * 16)])
    assert found.change is not None
    assert (found.change.outlook, found.change.cells) == (Outlook.UNKNOWN, ())


def test_a_build_that_came_back_is_a_period_of_its_own(rehearse: Callable[..., Results]) -> None:
    found = watched(rehearse, [measured(0, OLD), measured(2, NEW, 0.8), measured(4, OLD)])
    assert len(found.periods) == 3
    assert found.change is not None
    assert found.change.outlook is Outlook.FASTER


@pytest.mark.parametrize(
    ("image", "digest", "pinned"),
    [
        (IMAGE, "sha256:aa", "registry.example:5000/vllm@sha256:aa"),
        ("vllm", "sha256:aa", "vllm@sha256:aa"),
        ("vllm:1@sha256:bb", "sha256:aa", "vllm@sha256:aa"),
        ("vllm:1", "docker.io/vllm@sha256:aa", "docker.io/vllm@sha256:aa"),
        ("localhost/mine:1", "0123abcd", "0123abcd"),
        ("vllm:1", None, "vllm:1"),
    ],
)
def test_the_way_back_names_the_image_by_its_digest(image: str, digest: str | None, pinned: str) -> None:
    assert pinned_image(Build(image=image, image_digest=digest)) == pinned


def watch(*argv: str) -> tuple[int, str]:
    """Exit status and output of the command."""
    done = CliRunner().invoke(app, ["bench", "watch", *argv])
    return done.exit_code, done.output


def test_the_command_says_what_changed_and_how_to_go_back(
    recorded: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    recorded(bench_dir(), **measured(0, OLD))
    status, told = watch("coder")
    assert (status, "One build so far" in told, "SIMULATED" in told) == (0, True, True)
    recorded(bench_dir(), **measured(2, NEW, 0.9))
    status, told = watch("coder")
    assert status == 1
    assert "The newest build looks slower: (-10.0%) decode over 2 cells; 1 evening against 1." in told
    assert f"image: registry.example:5000/vllm@sha256:{'a' * 64}" in told
    assert "581.10" in told
    status, told = watch("coder", "--json")
    assert (status, json.loads(told)["change"]["outlook"]) == (1, "looks slower")


def test_a_profile_that_was_never_measured_says_how_to() -> None:
    done = CliRunner().invoke(app, ["bench", "watch", "coder"])
    assert done.exit_code != 0
    assert "coder has no decode figure in any recorded run" in str(done.exception)
