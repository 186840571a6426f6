"""Real containers: an image built on the spot, and one ground on which every runtime must behave alike."""

import os
import shutil
import subprocess
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import own_run
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
            port=own_run.engine_ports()[0] + sum(name.encode()) % own_run.PORTS,
            mounts=(Mount(source=str(self.folder), target=str(self.folder), read_only=False),),
            labels={LABEL_OWNER: self.owner, LABEL_PROFILE: name},
        )
        return spec.model_copy(update=change)

    def gate(self, name: str) -> Path:
        """A named pipe: a script waits at it with `read x < GATE`, the test opens it by writing."""
        fifo = self.folder / name
        os.mkfifo(fifo)
        return fifo


PODMAN = pytest.param("podman", marks=pytest.mark.podman)
DOCKER = pytest.param("docker", marks=[pytest.mark.full, pytest.mark.podman])


@pytest.fixture(scope="session")
def build_busybox(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """Builds an image of a few MB from scratch with a program, once a worker; no registry is asked."""
    busybox = shutil.which("busybox")
    assert busybox, "these tests need a static busybox: apt-get install busybox-static"
    folder = tmp_path_factory.mktemp("image")
    shutil.copy(busybox, folder / "busybox")
    (folder / "Containerfile").write_text(BUILD)
    image = f"localhost/sparkdash-test-busybox:{os.getpid()}"

    @cache
    def build(program: str) -> str:
        words = [program, "build", "-q", "-t", image, "-f", str(folder / "Containerfile"), str(folder)]
        subprocess.run(words, check=True, capture_output=True, timeout=60)
        return image

    return build


@pytest.fixture(params=[PODMAN, DOCKER])
def program(request: pytest.FixtureRequest) -> str:
    """Podman, then docker with its daemon."""
    if request.param == "docker":
        request.getfixturevalue("docker_daemon")
    return request.param


@pytest.fixture
async def container_ground(program: str, build_busybox: Callable[[str], str], tmp_path: Path) -> AsyncIterator[Ground]:
    """Real podman, then real docker."""
    ground = Ground(Podman(program), lambda: Podman(program), build_busybox(program), tmp_path)
    yield ground
    await _clear(ground)


@pytest.fixture(params=[PODMAN, DOCKER, "process"])
async def ground(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Ground]:
    """Every runtime in turn."""
    name = request.param
    if name == "process":
        folder = tmp_path / "processes"
        ground = Ground(Process(folder), lambda: Process(folder), None, tmp_path)
    else:
        if name == "docker":
            request.getfixturevalue("docker_daemon")
        # by name, as only containers need the image to be built
        ground = Ground(Podman(name), lambda: Podman(name), request.getfixturevalue("build_busybox")(name), tmp_path)
    yield ground
    await _clear(ground)


async def _clear(ground: Ground) -> None:
    runtime = ground.again()
    for left in await runtime.containers({LABEL_OWNER: ground.owner}):
        await runtime.stop(left.name, grace_s=0)
