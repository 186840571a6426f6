"""Engines that are stopped by a signal when they are to end: on real podman and with plain processes."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import psutil
import pytest

from sparkdash.domain.container import Leftovers
from sparkdash.host import command as command_line
from sparkdash.host.command import CommandResult

pytestmark = pytest.mark.full

GRACE_S = 60.0
"""Far more than any of them takes."""


def polite(ground: Any) -> Any:
    """A program that says goodbye when it is told to end, with a child that never hears of it."""
    return ground.spec(
        f"trap 'echo bye > {ground.folder}/said; exit 0' TERM; (trap '' TERM; sleep 300) & echo up; sleep 300 & wait"
    )


async def started(ground: Any, spec: Any) -> Any:
    info = await ground.runtime.start(spec)
    log = ground.runtime.logs(spec.name, follow=True)
    async for line in log:
        if line == "up":
            break
    await log.aclose()
    return info


async def is_ended_in_good_order(ground: Any, spec: Any, pids: set[int]) -> None:
    begin = time.monotonic()
    left = await ground.runtime.stop(spec.name, grace_s=GRACE_S)
    assert time.monotonic() - begin < GRACE_S / 2
    assert (ground.folder / "said").read_text() == "bye\n"
    assert left.stuck == ()
    assert await ground.runtime.inspect(spec.name) is None
    assert not [pid for pid in pids if psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie"]


@pytest.mark.parametrize("whom", ["all of them", "the first", "the child"])
async def test_one_that_was_stopped_by_a_signal_says_goodbye(ground: Any, whom: str) -> None:
    """SIGTERM alone would wait for as long as it is stopped: it was killed after its whole grace."""
    spec = polite(ground)
    info = await started(ground, spec)
    pids = await ground.runtime.pids(spec.name)
    for pid in {"all of them": pids, "the first": {info.pid}, "the child": pids - {info.pid}}[whom]:
        os.kill(pid, signal.SIGSTOP)
    await is_ended_in_good_order(ground, spec, pids)


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
