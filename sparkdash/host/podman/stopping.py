"""Stop of one container: SIGTERM, SIGKILL after its grace, removal, and proof that its processes are gone.

Owns: those steps, and the fallback when the runtime fails in one. Must not know the rest of the runtime.

The runtime has blocked for minutes on a box short of memory, and refuses to stop a paused container. So the processes
are listed before it is called, and killed directly if it fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from sparkdash.domain.container import LABEL_OWNER, ContainerInfo, Leftovers, engine_mark
from sparkdash.errors import HostError
from sparkdash.host.command import CommandResult
from sparkdash.host.podman import answers, argv
from sparkdash.host.processes import leftovers, suspended, unkillable
from sparkdash.host.thread import in_thread

LATE_S = 20.0
"""Time for `stop` beyond its grace; then the processes are killed directly."""
REMOVE_S = 60.0
"""Deadline of `rm`."""
RESUME_S = 10.0
"""Deadline of resuming a suspended container."""

Call = Callable[[list[str], float], Awaitable[CommandResult]]
"""Runs a command line of the runtime with a deadline. Raises HostError."""


async def stop_container(
    call: Call,
    program: str,
    name: str,
    info: ContainerInfo | None,
    grace_s: int,
    before_removal: Awaitable[None] | None,
) -> Leftovers:
    """Stop and remove a container; `info` is the container as last seen. See Runtime.stop."""
    members = await _members(info)
    if info is not None and members:
        await _resume(call, program, info, members)
    stopped = await _stop(call, program, name, grace_s)
    if stopped is None:
        return await leftovers.end_processes(members, await _members(info))
    killed: leftovers.Births = {}
    if not stopped:
        killed = {**(members or {}), **(await _members(info) or {})}
        await leftovers.end_processes(killed)
    if before_removal is not None:
        await before_removal
    try:
        await remove_container(call, program, name)
    except HostError as error:
        if left := leftovers.still_living(killed):
            raise unkillable.unkillable_error(name, left, leftovers.KILLED_S) from None
        if not killed:
            raise
        return Leftovers(unremoved=error.message)
    return await leftovers.end_processes(members, await _members(info))


async def remove_container(call: Call, program: str, name: str) -> None:
    """Remove the container by force; a missing one is success."""
    done = await call(argv.remove(program, name), REMOVE_S)
    if done.code and not answers.gone(done.err):
        raise answers.failed(program, "rm", done.err)


async def _stop(call: Call, program: str, name: str, grace_s: int) -> bool | None:
    """Return whether the runtime stopped the container; None if it no longer exists."""
    try:
        done = await call(argv.stop(program, name, grace_s), grace_s + LATE_S)
    except HostError as error:
        if error.code != "runtime_timeout":
            raise
        return False
    if done.code and answers.gone(done.err):
        return None
    return not done.code


async def _resume(call: Call, program: str, info: ContainerInfo, members: leftovers.Births) -> None:
    """Resume a paused container or stopped processes, which could not receive SIGTERM otherwise."""
    with suppress(TimeoutError, HostError):
        async with asyncio.timeout(RESUME_S):
            if await in_thread(lambda: suspended.is_frozen(members, info.id)):
                await call(
                    argv.unpause(program, info.name), RESUME_S
                )  # else the runtime still calls the container paused
            await in_thread(lambda: suspended.resume(members, info.id))


async def _members(info: ContainerInfo | None) -> leftovers.Births | None:
    """Processes of the container, by its control group and its mark; None if the scan took too long."""
    if info is None:
        return {}
    return await leftovers.scan_for_engine(engine_mark(info.labels.get(LABEL_OWNER, ""), info.name), info.id)
