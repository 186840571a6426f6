"""Docker's daemon ends and comes back while an engine runs, and a registry is asked: what podman has no part for."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from docker_daemon import DockerDaemon
from image_registry import ImageRegistry

from sparkdash.domain.container import LABEL_OWNER, ContainerState
from sparkdash.errors import HostError

pytestmark = [pytest.mark.full, pytest.mark.podman, pytest.mark.parametrize("program", ["docker"], indirect=True)]


async def test_an_engine_that_ends_with_dockers_daemon_is_found_ended(
    container_ground: Any, docker_daemon: DockerDaemon
) -> None:
    """While nobody answers, that is said; afterwards the engine's end is known, its log is there and it can go."""
    runtime, spec = container_ground.runtime, container_ground.spec("echo up; sleep 300 & wait")
    await runtime.start(spec)
    waiter = asyncio.ensure_future(runtime.wait(spec.name))
    await asyncio.to_thread(docker_daemon.stop)
    with pytest.raises(HostError, match="Cannot connect to the Docker daemon") as caught:
        await waiter
    assert (caught.value.code, "start docker" in (caught.value.hint or "")) == ("runtime_missing", True)
    await asyncio.to_thread(docker_daemon.start)
    assert await runtime.wait(spec.name) == 137
    assert (await runtime.inspect(spec.name)).state is ContainerState.EXITED
    assert [line async for line in runtime.logs(spec.name, follow=False)] == ["up"]


async def test_an_engine_outlives_dockers_daemon_under_live_restore(
    container_ground: Any, docker_daemon: DockerDaemon
) -> None:
    """The waiter notices nothing, and a later daemon of ours adopts the engine."""
    if docker_daemon.rootless:
        pytest.skip("containers of a rootless docker end with RootlessKit")
    runtime, spec = container_ground.runtime, container_ground.spec("echo up; sleep 300 & wait")
    await asyncio.to_thread(docker_daemon.stop)
    await asyncio.to_thread(docker_daemon.start, live_restore=True)
    info = await runtime.start(spec)
    waiter = asyncio.ensure_future(runtime.wait(spec.name))
    await asyncio.to_thread(docker_daemon.stop)
    await asyncio.to_thread(docker_daemon.start, live_restore=True)
    (found,) = await container_ground.again().containers({LABEL_OWNER: container_ground.owner})
    assert (found.id, found.pid, found.state) == (info.id, info.pid, ContainerState.RUNNING)
    assert not waiter.done()
    await runtime.stop(spec.name, grace_s=0)
    await asyncio.gather(waiter, return_exceptions=True)
    await asyncio.to_thread(docker_daemon.stop)
    await asyncio.to_thread(docker_daemon.start)


async def test_an_image_is_pulled_with_steps(container_ground: Any, tmp_path: Path, build_busybox: Any) -> None:
    """From a registry over real HTTP, which docker allows on loopback alone; afterwards it starts."""
    with ImageRegistry(tmp_path / "registry", build_busybox("podman"), "pulled") as registry:
        steps = [step async for step in container_ground.runtime.pull(registry.image)]
        spec = container_ground.spec("exit 3", image=registry.image)
        assert (len(steps) > 2, steps[-1].done) == (True, True)
        assert registry.image in await container_ground.runtime.images([registry.image])
    await container_ground.runtime.start(spec)
    assert await container_ground.runtime.wait(spec.name) == 3
