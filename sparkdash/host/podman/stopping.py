"""Stop of one container: SIGTERM, SIGKILL after its grace, removal, and proof that its processes are gone.

Owns: those steps, and the fallback when the runtime fails in one. Must not know the rest of the runtime.

The runtime has blocked for minutes on a box short of memory, and refuses to stop a paused container. So the processes
are listed before it is called, and killed directly if it fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

from sparkdash.domain.container import ContainerInfo, Leftovers
from sparkdash.errors import HostError
from sparkdash.host.command import CommandResult
from sparkdash.host.podman import answers, argv
from sparkdash.host.podman.podman_host import PodmanHost
from sparkdash.host.processes import leftovers, unkillable
from sparkdash.host.processes.leftovers import Births

LATE_S = 20.0
"""Time for `stop` beyond its grace; then the processes are killed directly."""
REMOVE_S = 60.0
"""Deadline of `rm`."""
RESUME_S = 10.0
"""Deadline of resuming a suspended container."""

Call = Callable[[list[str], float], Awaitable[CommandResult]]
"""Runs a command line of the runtime with a deadline. Raises HostError."""


@dataclass(frozen=True)
class ContainerStop:
    """Container to be stopped, and the calls that stop it."""

    call: Call
    host: PodmanHost
    program: str
    name: str
    info: ContainerInfo | None
    """Container as last seen; None if it was never seen."""


async def stop_container(stop: ContainerStop, grace_s: int, before_removal: Awaitable[None] | None) -> Leftovers:
    """Stop and remove a container. See Runtime.stop."""
    host = stop.host
    members = await host.members(stop.info)
    if stop.info is not None and members:
        await _resume(stop, stop.info, members)
    stopped = await _stop(stop, grace_s)
    if stopped is None:
        return await host.end(members, await host.members(stop.info))
    killed: Births = {}
    if not stopped:
        killed = {**(members or {}), **(await host.members(stop.info) or {})}
        await host.end(killed)
    if before_removal is not None:
        await before_removal
    try:
        await remove_container(stop.call, stop.program, stop.name)
    except HostError as error:
        if left := await host.still_living(killed):
            raise unkillable.unkillable_error(stop.name, left, leftovers.KILLED_S) from None
        if not killed:
            raise
        return Leftovers(unremoved=error.message)
    return await host.end(members, await host.members(stop.info))


async def remove_container(call: Call, program: str, name: str) -> None:
    """Remove the container by force; a missing one is success."""
    done = await call(argv.remove(program, name), REMOVE_S)
    if done.code and not answers.gone(done.err):
        raise answers.failed(program, "rm", done.err)


async def _stop(stop: ContainerStop, grace_s: int) -> bool | None:
    """Return whether the runtime stopped the container; None if it no longer exists."""
    try:
        done = await stop.call(argv.stop(stop.program, stop.name, grace_s), grace_s + LATE_S)
    except HostError as error:
        if error.code != "runtime_timeout":
            raise
        return False
    if done.code and answers.gone(done.err):
        return None
    return not done.code


async def _resume(stop: ContainerStop, info: ContainerInfo, members: Births) -> None:
    """Resume a paused container or stopped processes, which could not receive SIGTERM otherwise."""
    with suppress(TimeoutError, HostError):
        async with asyncio.timeout(RESUME_S):
            if await stop.host.is_frozen(info, members):
                # else the runtime still calls the container paused
                await stop.call(argv.unpause(stop.program, info.name), RESUME_S)
            await stop.host.resume(info, members)
