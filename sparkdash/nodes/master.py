"""Master connection of ssh: one connection that several calls or streams share.

Owns: the ssh process that holds the connection, and the reason of its end. Must not know what runs over it.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import NoReturn

from sparkdash.domain.node import Node
from sparkdash.errors import HostError
from sparkdash.host.command import begin_child, end_child
from sparkdash.nodes import ssh_command, ssh_errors

OPEN_S = 12.0
"""Deadline of a connection with its login. ssh itself waits ssh_command.CONNECT_S for the TCP connection."""
COMPLAINT_LINES = 40
HEAR_S = 0.5
"""Longest wait for the last words of an ended ssh; a jump host's process may hold the pipe open."""


@cache
def _ends_with_us() -> tuple[str, ...]:
    # an ssh that outlived a killed daemon would hold its port forwards and its sessions
    found = shutil.which("setpriv")
    return (found, "--pdeathsig", "KILL") if found else ()


def with_our_life(argv: Sequence[str]) -> list[str]:
    """Return the command line of a child that the kernel kills when this process is killed."""
    return [*_ends_with_us(), *argv]


class Master:
    """ssh connection of its own; `open` makes it, and its end is reported once."""

    def __init__(self, node: Node, socket: Path, known_hosts: Path, on_end: Callable[[HostError], None]) -> None:
        self.socket = socket
        self.users = 0
        """Sessions that run over the connection now, as their owner counts them."""
        self._node = node
        self._known_hosts = known_hosts
        self._on_end = on_end
        self._process: Process | None = None
        self._said: deque[str] = deque(maxlen=COMPLAINT_LINES)
        self._watch: asyncio.Task[None] | None = None
        self._closing = False

    @property
    def alive(self) -> bool:
        """Whether the connection is made and not known to be lost."""
        return self._watch is not None and not self._watch.done()

    async def open(self) -> None:
        """Connect and log in. Raises HostError: node_unreachable, host_key_changed, node_login_refused, …"""
        self.socket.unlink(missing_ok=True)
        argv = with_our_life(ssh_command.master(self._node, self.socket, self._known_hosts))
        try:
            process = await begin_child(argv, stdin=PIPE, stdout=PIPE, stderr=PIPE)
        except OSError as error:
            raise ssh_errors.ssh_missing(error.strerror or str(error)) from None
        hearing = asyncio.create_task(self._read_stderr(process))
        try:
            async with asyncio.timeout(OPEN_S):
                if not await _is_ready(process):
                    await asyncio.wait((asyncio.ensure_future(process.wait()), hearing))
                    self._refuse()
        except BaseException as error:
            await end_child(process)
            hearing.cancel()
            if isinstance(error, TimeoutError):
                raise ssh_errors.unreachable(self._node, f"no login within {OPEN_S:.0f} s") from None
            raise
        self._process = process
        self._watch = asyncio.create_task(self._until_end(process, hearing), name=f"ssh {self._node.name}")

    async def close(self) -> None:
        """End the connection and all that runs over it; its end is not reported."""
        self._closing = True
        if self._process is not None:
            await end_child(self._process)
        if self._watch is not None:
            await asyncio.wait((self._watch,), timeout=ssh_command.CONNECT_S)
        self.socket.unlink(missing_ok=True)

    def _refuse(self) -> NoReturn:
        raise ssh_errors.connection_error(self._node, "\n".join(self._said))

    async def _read_stderr(self, process: Process) -> None:
        assert process.stderr is not None  # noqa: S101 - `open` makes this pipe
        with contextlib.suppress(ValueError):  # a line beyond the reader's limit
            async for line in process.stderr:
                self._said.append(line.decode("utf-8", "replace").rstrip())

    async def _until_end(self, process: Process, hearing: asyncio.Task[None]) -> None:
        try:
            await process.wait()
            await asyncio.wait((hearing,), timeout=HEAR_S)
        finally:
            hearing.cancel()
            await end_child(process)
        self.socket.unlink(missing_ok=True)
        if not self._closing:
            said = "\n".join(self._said)
            gave_up = process.returncode == ssh_errors.FAILED and not said.strip()
            self._on_end(ssh_errors.connection_error(self._node, ssh_errors.NO_ANSWER if gave_up else said))


async def _is_ready(process: Process) -> bool:
    """Read up to the line READY, past what a login script may print; False if the output ends without it."""
    assert process.stdout is not None  # noqa: S101 - `open` makes this pipe
    while line := await process.stdout.readline():
        if line.strip() == ssh_command.READY.encode():
            return True
    return False
