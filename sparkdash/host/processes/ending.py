"""Waiting for processes of engines and ending them, from the event loop."""

import asyncio
import os
import time
from collections.abc import Collection
from contextlib import suppress
from typing import Any

from sparkdash.domain.container import ContainerInfo, ContainerSpec, ContainerState, Leftovers
from sparkdash.errors import HostError
from sparkdash.host.processes import leftovers, proc
from sparkdash.host.processes.leftovers import Births
from sparkdash.host.thread import in_thread
from sparkdash.units import duration

SCAN_S = 10.0
"""Time limit of a scan of all processes. It takes milliseconds, but much more on a box that is frozen."""
HINT = (
    "`dmesg` shows the reason, mostly the GPU's driver. Its memory comes back once the kernel releases the process, or "
    "with a restart of the box."
)


def unkillable_error(name: str, pids: Collection[int], waited_s: float) -> HostError:
    """Error for an engine whose processes still exist so many seconds after SIGKILL."""
    told = [leftovers.describe_stuck(pid) for pid in sorted(pids)]
    one = "process" if len(pids) == 1 else "processes"
    text = f"{name} does not end: {duration(waited_s)} after SIGKILL {one} {'; '.join(told)}."
    return HostError(text, code="unkillable", hint=HINT)


async def scan_for_engine(mark: str) -> Births:
    """Find the processes with the mark of an engine, in a thread; none if that took too long."""
    with suppress(TimeoutError):
        async with asyncio.timeout(SCAN_S):
            return await in_thread(lambda: leftovers.processes_of_engine(mark))
    return {}


async def end_processes(found: Births) -> Leftovers:
    """Send SIGKILL to the processes that still live, and wait for their end."""
    return as_leftovers(await in_thread(lambda: leftovers.end(found)))


def as_leftovers(done: dict[str, Any]) -> Leftovers:
    stuck = tuple(done["stuck"])
    return Leftovers(
        ended=tuple(done["ended"]), stuck=tuple(pid for pid, _ in stuck), stuck_how=tuple(how for _, how in stuck)
    )


async def wait_until_gone(pid: int, birth: str, limit_s: float | None) -> bool:
    """Wait for the end of a process, whatever its parent; False if `limit_s` passed first."""
    try:
        watch = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return leftovers.births([pid]).get(pid) != birth or await _over(watch, limit_s)
    finally:
        os.close(watch)


async def _over(held: int, limit_s: float | None) -> bool:
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(held, over.set)
    try:
        await asyncio.wait_for(over.wait(), limit_s)
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(held)
    return True


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
    return birth is None or await wait_until_gone(pid, birth, None)
