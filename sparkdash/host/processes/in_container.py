"""Processes of a container and the end of its first one, by the kernel instead of the runtime.

Owns: answers that save a call of podman, which costs 0.03 to 0.1 s and more on a busy box. Must not know how a
container is started or stopped.

Rule: only containers whose control group names them are known here (rootful and rootless podman, and docker with groups
of their own). Callers ask the runtime about any other.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

from sparkdash.domain.container import ContainerInfo, ContainerSpec, ContainerState
from sparkdash.host.processes import leftovers, proc
from sparkdash.host.thread import in_thread

LOOK_S = 1.0
"""Time limit of reading the control groups of all processes, which takes milliseconds."""


async def pids_of(container_id: str) -> set[int]:
    """Pids of the living processes in the container with that full id; empty if none is found within LOOK_S."""
    with suppress(TimeoutError):
        async with asyncio.timeout(LOOK_S):
            return await in_thread(lambda: leftovers.processes_in_containers([container_id])[container_id])
    return set()


async def just_started(spec: ContainerSpec, container_id: str) -> ContainerInfo | None:
    """Describe a container that has just started, as the runtime would; None if its first process is not found."""
    members = await pids_of(container_id)
    first = [pid for pid in members if (found := proc.stat(pid)) is not None and found.parent not in members]
    if len(first) != 1:
        return None
    return ContainerInfo(
        id=container_id,
        name=spec.name,
        state=ContainerState.RUNNING,
        image=spec.image,
        labels=spec.labels,
        pid=first[0],
        started_at=time.time(),
        gpu=any("nvidia" in device for device in spec.devices),
    )


async def has_ended(container: ContainerInfo) -> bool:
    """Wait for the end of the container's first process; False at once if the kernel cannot tell."""
    pid = container.pid
    if pid is None:
        return False
    birth = leftovers.births([pid]).get(pid)
    if birth is not None and not leftovers.is_in(container.id, pid):
        return False
    return birth is None or await leftovers.wait_until_gone(pid, birth, None)
