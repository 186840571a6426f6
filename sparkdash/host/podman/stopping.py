"""The end of one container: told to end, killed after its grace, removed, and seen to be gone.

Owns: those steps, and what is done when the runtime does not carry one out. Must not know the rest of the runtime.

The runtime is not the only one who can end processes: it has blocked for minutes on a box short of memory, and refuses
to stop a container that is paused. So its processes are known before it is asked, and killed directly if it fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from sparkdash.domain.container import LABEL_OWNER, ContainerInfo, Leftovers, mark
from sparkdash.errors import HostError
from sparkdash.host.command import CommandResult
from sparkdash.host.podman import answers, argv
from sparkdash.host.processes import leftovers, suspended, unkillable
from sparkdash.host.thread import in_thread

LATE_S = 20.0
"""What `stop` may take beyond its grace; then the processes are killed without it."""
REMOVE_S = 60.0
"""Limit of `rm`."""
RESUME_S = 10.0
"""Limit of having a suspended container run again."""

Call = Callable[[list[str], float], Awaitable[CommandResult]]
"""Runs a command line of the runtime with a limit. Raises HostError."""


async def stop_container(
    call: Call,
    program: str,
    name: str,
    info: ContainerInfo | None,
    grace_s: int,
    before_removal: Awaitable[None] | None,
) -> Leftovers:
    """Stop and remove; `info` is the container as last seen. See Runtime.stop."""
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
    """Remove the container by force. Gone already is success."""
    done = await call(argv.remove(program, name), REMOVE_S)
    if done.code and not answers.gone(done.err):
        raise answers.failed(program, "rm", done.err)


async def _stop(call: Call, program: str, name: str, grace_s: int) -> bool | None:
    """Whether the runtime stopped it; None: there is no such container any more."""
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
    """Have it run again where it is paused or its processes are stopped: as it is, it would not hear that it is to end."""
    with suppress(TimeoutError, HostError):
        async with asyncio.timeout(RESUME_S):
            if await in_thread(lambda: suspended.is_frozen(members, info.id)):
                await call(argv.unpause(program, info.name), RESUME_S)  # else it goes on calling the container paused
            await in_thread(lambda: suspended.resume(members, info.id))


async def _members(info: ContainerInfo | None) -> leftovers.Births | None:
    """The container's processes on this box, by its control group and its mark; None when the look was late."""
    if info is None:
        return {}
    return await leftovers.scan_for_engine(mark(info.labels.get(LABEL_OWNER, ""), info.name), info.id)
