"""`sparkdash profiles list` as on a box just unpacked: an empty home, podman without images, no daemon."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparkdash.domain.images.origin import ImageOrigin, image_origin
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


def test_at_least_29_profiles_for_one_spark_can_be_pulled_or_built(
    sparkdash: Run, nobody: None, own_folders: Path, no_images: None
) -> None:
    """Those that cannot run, need two boxes or have no source do not count."""
    ways = [
        image_origin(each.image, each.build)
        for each in summaries(sparkdash)
        if each.nodes == 1 and each.cannot_run is None and each.image
    ]
    assert len([way for way in ways if way in (ImageOrigin.PULL, ImageOrigin.BUILD)]) >= 29


def test_no_profile_is_listed_in_a_state_that_is_unclear(
    sparkdash: Run, nobody: None, own_folders: Path, no_images: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each row says how its image comes here, that it has no source, or that the profile cannot run."""
    monkeypatch.setenv("COLUMNS", "250")
    listed = {each.name: each for each in summaries(sparkdash)}
    rows = [line for line in sparkdash("profiles", "list").out.splitlines()[1:] if line.strip()]
    assert [row.split()[0] for row in rows] == list(listed)
    for row, profile in zip(rows, listed.values(), strict=True):
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
