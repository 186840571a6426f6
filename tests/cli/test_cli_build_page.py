"""The page that `sparkdash build` shows before it asks, without a podman."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkdash.cli.profiles.build_page import PlannedBuild, build_lines
from sparkdash.domain.images.image_build import ImageBuild
from sparkdash.host.image_build.jobs import BuildJob
from sparkdash.host.image_build.looks import BaseState, Box
from sparkdash.units import GIB

BOX = Box("arm64", Path("/images"), 50 * GIB, 20 * GIB)
JOB = BuildJob("localhost/a:1", "a", ImageBuild(context="images/a"), Path("/profiles"), "d")


@pytest.mark.parametrize(
    ("base", "told"),
    [
        (BaseState("docker.io/a/b:1", here=True, fits=True), "docker.io/a/b:1 (here, for arm64)"),
        (BaseState("docker.io/a/b:1", here=False, fits=False, found="amd64"), "(to fetch, FOR amd64)"),
        (
            BaseState("docker.io/a/b:1", here=False, fits=None),
            "(to fetch, its registry did not say for which processor)",
        ),
        (BaseState("a/b:1", here=False, fits=True), "(to fetch from a registry of podman's settings, for arm64)"),
        (BaseState("localhost/b:1", here=False, fits=None), "localhost/b:1 (NOT HERE, and no registry has it)"),
    ],
    ids=lambda one: one.name if isinstance(one, BaseState) else "",
)
def test_the_page_says_where_a_base_image_comes_from(base: BaseState, told: str) -> None:
    page = "\n".join(build_lines([PlannedBuild(JOB, (base,), None)], BOX, 200))
    assert told in page
