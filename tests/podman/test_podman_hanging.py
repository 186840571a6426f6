"""Engines that are to end while podman does not answer."""

from __future__ import annotations

from typing import Any

import psutil
import pytest

from sparkdash.domain.container import Leftovers
from sparkdash.host import command as command_line
from sparkdash.host.command import CommandResult

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
