"""Real containers: an image built on the spot, and one ground on which every runtime must behave alike."""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sparkdash.domain.container import LABEL_OWNER, LABEL_PROFILE, ContainerSpec
from sparkdash.domain.profile import Mount
from sparkdash.host.podman.podman import Podman
from sparkdash.host.processes.process import Process
from sparkdash.host.runtime import Runtime

os.environ.setdefault("CONTAINERS_CONF", str(Path(__file__).with_name("containers.conf")))

BUILD = """\
FROM scratch
COPY busybox /bin/sh
COPY busybox /bin/setsid
COPY busybox /bin/sleep
COPY busybox /bin/false
ENTRYPOINT ["/bin/false"]
"""
"""The entrypoint ends at once with 1: a container that lives proves that its argv replaced it."""


@dataclass
class Ground:
    """A runtime and what tests need to start things on it. `folder` is the same path inside and outside."""

    runtime: Runtime
    again: Callable[[], Runtime]
    """A fresh runtime, as a daemon started later has."""
    image: str | None
    folder: Path
    owner: str = field(default_factory=lambda: uuid.uuid4().hex[:12])

    def spec(self, script: str, name: str = "a", **change: object) -> ContainerSpec:
        """Runs `script` in a shell: the box's own, or busybox as PID 1 of a container."""
        spec = ContainerSpec(
            name=f"sparkdash-test-{self.owner}-{name}",
            image=self.image,
            argv=("/bin/sh", "-c", script),
            port=1,
            mounts=(Mount(source=str(self.folder), target=str(self.folder), read_only=False),),
            labels={LABEL_OWNER: self.owner, LABEL_PROFILE: name},
        )
        return spec.model_copy(update=change)

    def gate(self, name: str) -> Path:
        """A named pipe: a script waits at it with `read x < GATE`, the test opens it by writing."""
        fifo = self.folder / name
        os.mkfifo(fifo)
        return fifo


@pytest.fixture(scope="session")
def busybox_image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An image of a few MB from scratch; no registry is asked."""
    busybox = shutil.which("busybox")
    assert busybox, "these tests need a static busybox: apt-get install busybox-static"
    folder = tmp_path_factory.mktemp("image")
    shutil.copy(busybox, folder / "busybox")
    (folder / "Containerfile").write_text(BUILD)
    image = f"localhost/sparkdash-test-busybox:{os.getpid()}"
    subprocess.run(["podman", "build", "-q", "-t", image, str(folder)], check=True, capture_output=True, timeout=60)
    yield image
    subprocess.run(["podman", "rmi", "--force", image], check=True, capture_output=True, timeout=60)


@pytest.fixture
async def podman_ground(busybox_image: str, tmp_path: Path) -> AsyncIterator[Ground]:
    ground = Ground(Podman(), Podman, busybox_image, tmp_path)
    yield ground
    await _clear(ground)


@pytest.fixture(params=[pytest.param("podman", marks=pytest.mark.podman), "process"])
async def ground(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Ground]:
    if request.param == "podman":
        # by name, as only this runtime needs the image to be built
        ground = Ground(Podman(), Podman, request.getfixturevalue("busybox_image"), tmp_path)
    else:
        folder = tmp_path / "processes"
        ground = Ground(Process(folder), lambda: Process(folder), None, tmp_path)
    yield ground
    await _clear(ground)


async def _clear(ground: Ground) -> None:
    runtime = ground.again()
    for left in await runtime.containers({LABEL_OWNER: ground.owner}):
        await runtime.stop(left.name, grace_s=0)
