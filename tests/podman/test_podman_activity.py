"""What a real container's processes do: at work, paused by podman, and at work again."""

from __future__ import annotations

import asyncio
import subprocess
from typing import Any

import pytest

from sparkdash.host.processes import activity

pytestmark = [pytest.mark.full, pytest.mark.podman]


async def podman(*words: str) -> None:
    await asyncio.to_thread(subprocess.run, ["podman", *words], check=True, capture_output=True)


async def test_every_process_of_a_paused_container_is_stopped(podman_ground: Any) -> None:
    """They look asleep or stuck in the kernel; their control group tells that they are frozen."""
    spec = podman_ground.spec("sleep 300 & echo up; while true; do :; done")
    await podman_ground.runtime.start(spec)
    log = podman_ground.runtime.logs(spec.name, follow=True)
    async for line in log:
        if line == "up":
            break
    await log.aclose()
    pids = await podman_ground.runtime.pids(spec.name)
    before = activity.read_activity(pids)
    await podman("pause", spec.name)
    paused = activity.read_activity(await podman_ground.runtime.pids(spec.name))
    await podman("unpause", spec.name)
    again = activity.read_activity(pids)
    assert before is not None
    assert paused is not None
    assert again is not None
    assert (before.processes, before.stopped) == (2, ())
    assert (paused.processes, len(paused.stopped)) == (2, 2)
    assert again.stopped == ()
    assert before.cpu_s <= paused.cpu_s <= again.cpu_s
