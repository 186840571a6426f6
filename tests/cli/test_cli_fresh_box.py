"""`sparkdash profiles list` as on a box just unpacked: an empty home, podman without images, no daemon."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparkdash.domain.images.origin import ImageOrigin
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


def summaries(sparkdash: Run) -> list[ProfileSummary]:
    told = sparkdash("profiles", "list", "--json").json()
    assert told["problems"] == []
    return [ProfileSummary.model_validate(each) for each in told["profiles"]]


def rows(sparkdash: Run) -> list[str]:
    return [line for line in sparkdash("profiles", "list").out.splitlines()[1:] if line.strip()]


def test_at_least_29_profiles_for_one_spark_can_be_pulled_or_built(
    sparkdash: Run, nobody: None, own_folders: Path, no_images: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Image and weights; those for two boxes do not count."""
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


def test_what_cannot_run_names_a_profile_that_can(sparkdash: Run, nobody: None, own_folders: Path) -> None:
    """Shown as `nearest`."""
    listed = {each.name: each for each in summaries(sparkdash)}
    for each in listed.values():
        if each.cannot_run:
            assert each.nearest is not None
            assert listed[each.nearest].cannot_run is None
