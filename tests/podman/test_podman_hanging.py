"""Engines that are to end without a word from podman: it does not answer, or the memory guard kills."""

from typing import Any

import psutil
import pytest

from sparkdash.domain.container import Leftovers
from sparkdash.host import command as command_line
from sparkdash.host.command import CommandResult
from sparkdash.host.memory.guard import KillTarget

pytestmark = pytest.mark.full


async def started(ground: Any, spec: Any) -> Any:
    info = await ground.runtime.start(spec)
    log = ground.runtime.logs(spec.name, follow=True)
    async for line in log:
        if line == "up":
            break
    await log.aclose()
    return info


def silent(monkeypatch: pytest.MonkeyPatch, *verbs: str) -> None:
    async def call(command: list[str], *, deadline_s: float | None, **how: Any) -> CommandResult:
        if command[1] in verbs:
            raise TimeoutError
        return await made(command, deadline_s=deadline_s, **how)

    made = command_line.run_command
    monkeypatch.setattr(command_line, "run_command", call)


@pytest.mark.podman
async def test_a_podman_that_does_not_stop_it_is_not_the_only_one_who_can(
    container_ground: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The processes are killed without podman, which then removes what is dead."""
    spec = container_ground.spec("trap '' TERM; echo up; while :; do sleep 1; done")
    info = await started(container_ground, spec)
    killed: list[bool] = []
    silent(monkeypatch, "stop")

    async def before_removal() -> None:
        killed.append(psutil.pid_exists(info.pid) and psutil.Process(info.pid).status() != "zombie")

    assert await container_ground.runtime.stop(spec.name, 1, before_removal()) == Leftovers()
    assert killed == [False]
    assert await container_ground.runtime.inspect(spec.name) is None


@pytest.mark.podman
async def test_an_engine_that_is_dead_is_not_called_alive_since_podman_does_not_answer(
    container_ground: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = container_ground.spec("trap '' TERM; echo up; while :; do sleep 1; done")
    info = await started(container_ground, spec)
    with monkeypatch.context() as hanging:
        silent(hanging, "stop", "rm")
        left = await container_ground.runtime.stop(spec.name, 1)
    assert f"`{container_ground.runtime.name} rm` gave no answer" in left.unremoved
    assert not psutil.pid_exists(info.pid) or psutil.Process(info.pid).status() == "zombie"


async def test_a_kill_ends_an_engine_and_what_it_forked(ground: Any) -> None:
    """The runtime sees it ended by SIGKILL, and none of its processes is left; one of them had left its session.

    The leader does not wait for its child: it would end by itself, well, when the child goes first.
    """
    up = ground.gate("up")
    child = f"setsid sh -c 'echo up > {up}; exec sleep 600'"
    spec = ground.spec(f"{child} & exec sleep 600")
    container = await ground.runtime.start(spec)
    with up.open() as gate:
        assert gate.readline() == "up\n"
    pids = await ground.runtime.pids(spec.name)
    assert len(pids) >= 2
    target = KillTarget.of(container)
    assert target is not None
    assert target.kill() >= 2
    assert await ground.runtime.wait(spec.name) == 137
    assert await ground.runtime.pids(spec.name) == set()
    assert not target.alive
    target.close()
