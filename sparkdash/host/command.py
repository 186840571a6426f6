"""Running a command-line program from the event loop, and never longer than allowed.

Owns: the child's life: its deadline, and its end when the caller is cancelled or stops listening.
Must not know which program it is or what its output means.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import IO, Any

from sparkdash.host.files.line_splitter import LineSplitter

REAP_S = 2.0
"""How long a killed child may take to go. One stuck in the kernel is left behind rather than waited for."""

_CHUNK = 65536


@dataclass(frozen=True, slots=True)
class CommandResult:
    """A command that ended. Output is decoded, bytes that are not UTF-8 replaced."""

    code: int
    out: str
    err: str


async def run_command(
    argv: Sequence[str], *, deadline_s: float | None, env: Mapping[str, str] | None = None
) -> CommandResult:
    """Run a program to its end; `deadline_s` None: no limit, `env` None: our own environment.

    Output goes through files. A pipe would stay open until every process that the program left behind has ended, and
    `podman run -d` leaves the container's monitor. The files are in memory: on a full disk `podman ps` writes nothing
    and reports success, as if there were no container.

    Raises: TimeoutError: the deadline passed; the child has been killed. OSError: the program cannot be run
    (FileNotFoundError: there is none).
    """
    with _in_memory() as out, _in_memory() as err:
        async with asyncio.timeout(deadline_s), child_running(argv, stdout=out, stderr=err, env=env) as process:
            code = await process.wait()
        return CommandResult(code, _written(out), _written(err))


async def command_output(
    argv: Sequence[str], *, deadline_s: float, limit: int, env: Mapping[str, str] | None = None
) -> str:
    """Run a program for both its output streams, `limit` bytes at most; its children end with it.

    Raises:
        TimeoutError, OSError: as `call`.
    """
    said = bytearray()
    async with asyncio.timeout(deadline_s), child_running(argv, stderr=STDOUT, env=env) as process:
        assert process.stdout is not None  # noqa: S101 - `running` makes this pipe
        try:
            while len(said) < limit and (chunk := await process.stdout.read(_CHUNK)):
                said += chunk
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
    return said[:limit].decode("utf-8", "replace")


def _in_memory() -> IO[bytes]:
    return os.fdopen(os.memfd_create("sparkdash"), "w+b", buffering=0)


def _written(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("utf-8", "replace")


@asynccontextmanager
async def child_running(
    argv: Sequence[str],
    *,
    stdout: int | IO[bytes] = PIPE,
    stderr: int | IO[bytes] = PIPE,
    env: Mapping[str, str] | None = None,
) -> AsyncIterator[Process]:
    """Run a child for the length of the block; kill it at the end if it still runs. `env` None: our own environment.

    Raises:
        OSError: as `call`.
    """
    process = await begin_child(argv, stdin=DEVNULL, stdout=stdout, stderr=stderr, env=env)
    try:
        yield process
    finally:
        await end_child(process)


async def begin_child(argv: Sequence[str], **how: Any) -> Process:
    """Start a child in a session of its own, so that Ctrl-C in the daemon's terminal does not cut it in half; `how` as
    `asyncio.create_subprocess_exec` takes it. Who is cancelled meanwhile leaves none behind.

    Raises:
        OSError: as `call`.
    """
    making = asyncio.ensure_future(asyncio.create_subprocess_exec(*argv, start_new_session=True, **how))
    left: asyncio.CancelledError | None = None
    while not making.done():
        try:
            await asyncio.wait((making,))
        except asyncio.CancelledError as again:  # asyncio itself bears one, and would leave the child at the second
            left = again
    if left is None:
        return making.result()
    if not making.cancelled() and making.exception() is None:
        await end_child(making.result())
    raise left


async def end_child(process: Process) -> None:
    """Kill a child that still runs, and let its pipes go. It is seen to go also when its caller is cancelled meanwhile, however
    often: one that nobody saw go is told of by a loop that is no more.
    """
    left: asyncio.CancelledError | None = None
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        due = asyncio.get_running_loop().time() + REAP_S
        while process.returncode is None:
            try:
                async with asyncio.timeout_at(due):
                    await process.wait()
            except TimeoutError:
                break
            except asyncio.CancelledError as again:
                left = again
    # Unread output keeps asyncio's transport open for ever, and there is no public way to close it.
    process._transport.close()  # type: ignore[attr-defined]  # not in typeshed
    if left is not None:
        raise left


async def stdout_lines(process: Process, *, silence_s: float | None = None) -> AsyncIterator[str]:
    """What `process` writes to stdout, line by line, until it closes it.

    Raises:
        TimeoutError: nothing came for `silence_s` seconds.
    """
    assert process.stdout is not None  # noqa: S101 - `running` always makes this pipe
    splitter = LineSplitter()
    while chunk := await asyncio.wait_for(process.stdout.read(_CHUNK), silence_s):
        for line in splitter.feed(chunk):
            yield line
    for line in splitter.rest():
        yield line
