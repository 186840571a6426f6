"""`sparkdash profiles list` as on a box just unpacked: an empty home, podman without images, no daemon."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparkdash.domain.images import ImageOrigin
from sparkdash.domain.profile import EngineKind, ProfileSummary

Run = Callable[..., Any]

SERVICES = frozenset({EngineKind.OPENAI, EngineKind.REMOTE, EngineKind.SIM})
"""Engines without an image."""


@pytest.fixture
def no_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A podman that has none."""
    podman = tmp_path / "bin" / "podman"
    podman.parent.mkdir()
    podman.write_text('#!/bin/sh\nfor image; do echo "Error: $image: image not known" >&2; done\nexit 125\n')
    podman.chmod(0o755)
    monkeypatch.setenv("PATH", str(podman.parent), prepend=":")


@pytest.fixture
def no_podman(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A box on which podman was never installed."""
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.setenv("PATH", str(empty))


@pytest.fixture
def ill_podman(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A podman that fails whatever it is asked."""
    podman = tmp_path / "bin" / "podman"
    podman.parent.mkdir()
    podman.write_text("#!/bin/sh\necho 'Error: database is locked' >&2\nexit 125\n")
    podman.chmod(0o755)
    monkeypatch.setenv("PATH", str(podman.parent), prepend=":")


def summaries(sparkdash: Run) -> list[ProfileSummary]:
    told = sparkdash("profiles", "--json").json()
    assert told["problems"] == []
    return [ProfileSummary.model_validate(each) for each in told["profiles"]]


def rows(sparkdash: Run) -> list[str]:
    return [line for line in sparkdash("profiles").out.splitlines()[1:] if line.strip()]


def test_at_least_29_profiles_for_one_spark_can_be_pulled_or_built(
    sparkdash: Run, nobody: None, own_folders: Path, no_images: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "250")
    for_one = {each.name for each in summaries(sparkdash) if each.nodes == 1}
    able = [row for row in rows(sparkdash) if row.endswith(("can be pulled", "can be built"))]
    assert len([row for row in able if row.split()[0] in for_one]) >= 29


def test_no_profile_is_listed_in_a_state_that_is_unclear(
    sparkdash: Run, nobody: None, own_folders: Path, no_images: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each row says how its image comes here, that it has no source, or that the profile cannot run."""
    monkeypatch.setenv("COLUMNS", "250")
    listed = {each.name: each for each in summaries(sparkdash)}
    shown = rows(sparkdash)
    assert sorted(row.split()[0] for row in shown) == sorted(listed)
    for row in shown:
        profile = listed[row.split()[0]]
        clear = [way.value for way in ImageOrigin if f" {way.value} " in row]
        assert clear or profile.cannot_run or profile.engine in SERVICES, row
        assert row.endswith(("can be pulled", "can be built", "no image", "no weights", "cannot run")), row
        assert row.endswith("cannot run") is bool(profile.cannot_run), row


def test_without_podman_the_list_is_that_of_a_box_without_images(
    sparkdash: Run, nobody: None, own_folders: Path, no_podman: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is here that podman would have fetched, and the note says what is missing."""
    monkeypatch.setenv("COLUMNS", "250")
    done = sparkdash("profiles")
    state = {line.split()[0]: line for line in done.out.splitlines()[1:]}
    assert state["kokoro"].endswith("can be pulled")
    assert state["qwen3-asr-0.6b"].endswith("can be pulled")
    assert " to build " in state["qwen3-asr-1.7b"]
    assert state["qwen3-asr-1.7b"].endswith("can be built")
    assert "no daemon" not in done.out
    assert "podman is not installed" in done.err


def test_with_a_podman_that_fails_the_list_says_so_in_each_row_that_needs_it(
    sparkdash: Run, nobody: None, own_folders: Path, ill_podman: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "250")
    done = sparkdash("profiles")
    state = {line.split()[0]: line for line in done.out.splitlines()[1:]}
    for name in ("kokoro", "qwen3-asr-1.7b", "gemma-3-4b"):
        assert state[name].endswith("podman silent"), state[name]
    assert "podman does not answer" in done.err


def test_programs_of_this_box_need_no_image(
    sparkdash: Run, nobody: None, own_folders: Path, no_podman: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARKDASH_RUNTIME", "process")
    monkeypatch.setenv("COLUMNS", "250")
    done = sparkdash("profiles")
    state = {line.split()[0]: line for line in done.out.splitlines()[1:]}
    assert state["kokoro"].endswith("can start")
    assert state["gemma-3-4b"].endswith("can be pulled")
    assert "podman" not in done.err


def test_what_cannot_run_names_a_profile_that_can(sparkdash: Run, nobody: None, own_folders: Path) -> None:
    listed = {each.name: each for each in summaries(sparkdash)}
    for each in listed.values():
        if each.cannot_run:
            assert each.nearest is not None
            assert listed[each.nearest].cannot_run is None
