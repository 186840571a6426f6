"""Engines that are stopped by a signal, paused or frozen when they are to end: on real podman and with plain processes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from sparkdash.domain.container import ContainerSpec, Leftovers
from sparkdash.errors import HostError
from sparkdash.host import command as command_line
from sparkdash.host.command import CommandResult
from sparkdash.host.processes import process

pytestmark = pytest.mark.full

GRACE_S = 60.0
"""Far more than any of them takes."""
FREEZER = Path("/sys/fs/cgroup/freezer")


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


def frozen_group(pid: int) -> Path:
    """The file that freezes the control group of this process's container."""
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        for root, name in ((FREEZER, "freezer.state"), (Path("/sys/fs/cgroup"), "cgroup.freeze")):
            if ("freezer" in controllers) is (name == "freezer.state") and (root / path[1:] / name).exists():
                return root / path[1:] / name
    pytest.skip("no control group of its own can be frozen here")


def freeze(file: Path) -> None:
    try:
        file.write_text("FROZEN" if file.name == "freezer.state" else "1")
    except OSError as error:
        pytest.skip(f"control groups cannot be frozen here: {error}")


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


@pytest.mark.podman
async def test_a_container_that_was_paused_says_goodbye(podman_ground: Any) -> None:
    """podman refuses to stop a paused container, and would kill it."""
    spec = polite(podman_ground)
    await started(podman_ground, spec)
    pids = await podman_ground.runtime.pids(spec.name)
    await asyncio.to_thread(subprocess.run, ["podman", "pause", spec.name], check=True, capture_output=True)
    await is_ended_in_good_order(podman_ground, spec, pids)


@pytest.mark.podman
async def test_a_container_whose_control_group_somebody_froze_says_goodbye(podman_ground: Any) -> None:
    """podman knows nothing of that: it would wait out the grace, and cgroup v1 lets not even SIGKILL through."""
    spec = polite(podman_ground)
    info = await started(podman_ground, spec)
    pids = await podman_ground.runtime.pids(spec.name)
    freeze(frozen_group(info.pid))
    await is_ended_in_good_order(podman_ground, spec, pids)


def silent(monkeypatch: pytest.MonkeyPatch, *verbs: str) -> None:
    """From now on podman gives no answer to these."""

    async def call(command: list[str], *, deadline_s: float | None, **how: Any) -> CommandResult:
        if command[1] in verbs:
            raise TimeoutError
        return await made(command, deadline_s=deadline_s, **how)

    made = command_line.run_command
    monkeypatch.setattr(command_line, "run_command", call)


@pytest.mark.podman
async def test_a_podman_that_does_not_stop_it_is_not_the_only_one_who_can(
    podman_ground: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its processes are killed without podman, which then removes what is dead."""
    spec = podman_ground.spec("trap '' TERM; echo up; while :; do sleep 1; done")
    info = await started(podman_ground, spec)
    killed: list[bool] = []
    silent(monkeypatch, "stop")

    async def before_removal() -> None:
        killed.append(psutil.pid_exists(info.pid) and psutil.Process(info.pid).status() != "zombie")

    assert await podman_ground.runtime.stop(spec.name, 1, before_removal()) == Leftovers()
    assert killed == [False]
    assert await podman_ground.runtime.inspect(spec.name) is None


@pytest.mark.podman
async def test_an_engine_that_is_dead_is_not_called_alive_since_podman_does_not_answer(
    podman_ground: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = podman_ground.spec("trap '' TERM; echo up; while :; do sleep 1; done")
    info = await started(podman_ground, spec)
    with monkeypatch.context() as hanging:
        silent(hanging, "stop", "rm")
        left = await podman_ground.runtime.stop(spec.name, 1)
    assert "`podman rm` gave no answer" in left.unremoved
    assert not psutil.pid_exists(info.pid) or psutil.Process(info.pid).status() == "zombie"


@contextmanager
def unkillable(pid: int) -> Iterator[None]:
    """Nothing reaches this process meanwhile: its control group, which is none of a container's, is frozen."""
    group = FREEZER / f"sparkdash-test-{pid}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no control group of cgroup v1 can be made here: {error}")
    try:
        (group / "cgroup.procs").write_text(str(pid))
        freeze(group / "freezer.state")
        yield
    finally:
        (group / "freezer.state").write_text("THAWED")
        with suppress(psutil.NoSuchProcess):
            psutil.Process(pid).wait(10)
        group.rmdir()


async def test_a_process_that_not_even_sigkill_ends_is_told_with_what_keeps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "KILLED_S", 0.5)
    runtime = process.Process(tmp_path)
    spec = ContainerSpec(name="n", image=None, argv=("/bin/sh", "-c", "sleep 300 & wait"), port=1)
    info = await runtime.start(spec)
    assert info.pid is not None
    with unkillable(info.pid), pytest.raises(HostError) as caught:
        await runtime.stop(spec.name, grace_s=0.2)
    assert caught.value.code == "unkillable"
    assert f"0.5s after SIGKILL process {info.pid} (sh) is in a frozen control group." in caught.value.message
    await runtime.stop(spec.name, grace_s=1)
