"""Command-line programs run from the event loop, each with a deadline."""

import asyncio
import contextlib
import os
import re
import signal
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import IO, Any, Protocol

LINE_LIMIT = 8192
"""Bytes of a line that are kept; a cut is marked. An engine's longest useful line is its config, 3-5 kB."""

_BREAK = re.compile(rb"([\r\n])")


class LineSplitter:
    """Turns chunks into whole lines. Bytes that are not UTF-8 become U+FFFD; empty progress lines are dropped."""

    def __init__(self, limit: int = LINE_LIMIT) -> None:
        self._limit = limit
        self._line = bytearray()
        self._after_return = False

    def feed(self, chunk: bytes) -> list[str]:
        parts = _BREAK.split(chunk)
        lines = []
        for text, end in zip(parts[::2], [*parts[1::2], b""], strict=True):
            self._keep(text)
            if end and (line := self._end(end)) is not None:
                lines.append(line)
        return lines

    def rest(self) -> list[str]:
        """Return the unfinished line at the end of the stream, if any."""
        return [self._take()] if self._line else []

    def _keep(self, text: bytes) -> None:
        room = self._limit + 1 - len(self._line)
        self._line += text[: max(room, 0)]
        self._after_return = self._after_return and not text

    def _end(self, end: bytes) -> str | None:
        empty = not self._line
        noise = empty and (end == b"\r" or self._after_return)
        self._after_return = end == b"\r"
        return None if noise else self._take()

    def _take(self) -> str:
        kept, cut = self._line[: self._limit], len(self._line) > self._limit
        self._line = bytearray()
        return kept.decode("utf-8", "replace") + ("…" if cut else "")


REAP_S = 2.0
"""Longest wait for a killed child; one stuck in the kernel is left behind."""

_CHUNK = 65536


@dataclass(frozen=True, slots=True)
class CommandResult:
    """Exit code and output of a command; bytes that are not UTF-8 are replaced."""

    code: int
    out: str
    err: str


class Commands(Protocol):
    """Runs programs on one box: on this one, or on another over ssh.

    `variables` are added to the program's environment and never shown in a command line.
    """

    async def run(
        self, argv: Sequence[str], *, deadline_s: float | None, variables: Mapping[str, str] | None = None
    ) -> CommandResult:
        """Run a program to its end. Raises TimeoutError, OSError; HostError if the box cannot be reached."""
        ...

    def child(self, argv: Sequence[str]) -> AbstractAsyncContextManager[Process]:
        """Run a program for the length of the block; stdout is a pipe with both output streams. Raises as `run`.

        A box that is lost meanwhile ends the output, and leaving the block raises HostError.
        """
        ...


class LocalPrograms:
    """Programs of this box."""

    async def run(
        self, argv: Sequence[str], *, deadline_s: float | None, variables: Mapping[str, str] | None = None
    ) -> CommandResult:
        return await run_command(argv, deadline_s=deadline_s, env=_environment(variables))

    def child(self, argv: Sequence[str]) -> AbstractAsyncContextManager[Process]:
        return child_running(argv, stderr=STDOUT)


def _environment(variables: Mapping[str, str] | None) -> dict[str, str] | None:
    return {**os.environ, **variables} if variables else None


async def run_command(
    argv: Sequence[str], *, deadline_s: float | None, env: Mapping[str, str] | None = None, stdin: bytes | None = None
) -> CommandResult:
    """Run a program to its end. `deadline_s` None means no deadline, `env` None our own environment.

    `stdin` is what the program may read; None: nothing.

    Output goes through files. A pipe would stay open until every process that the program left behind has ended, and
    `podman run -d` leaves the container's monitor. The files are in memory: on a full disk `podman ps` writes nothing
    and reports success, as if there were no container.

    Raises:
        TimeoutError: the deadline passed, and the child was killed.
        OSError: the program cannot be run (FileNotFoundError: it does not exist).
    """
    with _in_memory() as out, _in_memory() as err, _in_memory(stdin or b"") as entered:
        read = DEVNULL if stdin is None else entered
        async with (
            asyncio.timeout(deadline_s),
            child_running(argv, stdin=read, stdout=out, stderr=err, env=env) as process,
        ):
            code = await process.wait()
        return CommandResult(code, _written(out), _written(err))


async def command_output(
    argv: Sequence[str], *, deadline_s: float, limit: int, env: Mapping[str, str] | None = None
) -> str:
    """Run a program; return both output streams, `limit` bytes at most. Raises TimeoutError, OSError."""
    said = bytearray()
    async with asyncio.timeout(deadline_s), child_running(argv, stderr=STDOUT, env=env) as process:
        assert process.stdout is not None  # noqa: S101 - `child_running` makes this pipe
        while len(said) < limit and (chunk := await process.stdout.read(_CHUNK)):
            said += chunk
    return said[:limit].decode("utf-8", "replace")


def _in_memory(content: bytes = b"") -> IO[bytes]:
    file = os.fdopen(os.memfd_create("sparkdash"), "w+b", buffering=0)
    if content:
        file.write(content)
        file.seek(0)
    return file


def _written(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("utf-8", "replace")


@asynccontextmanager
async def child_running(
    argv: Sequence[str],
    *,
    stdin: int | IO[bytes] = DEVNULL,
    stdout: int | IO[bytes] = PIPE,
    stderr: int | IO[bytes] = PIPE,
    env: Mapping[str, str] | None = None,
) -> AsyncIterator[Process]:
    """Run a child for the length of the block; kill it at the end if it still runs. Raises OSError."""
    process = await begin_child(argv, stdin=stdin, stdout=stdout, stderr=stderr, env=env)
    try:
        yield process
    finally:
        await end_child(process)


async def begin_child(argv: Sequence[str], **how: Any) -> Process:
    """Start a child in a session of its own, so that Ctrl-C in the daemon's terminal does not end it.

    `how` goes to `asyncio.create_subprocess_exec`. A cancelled caller leaves no child behind. Raises OSError.
    """
    making = asyncio.ensure_future(asyncio.create_subprocess_exec(*argv, start_new_session=True, **how))
    left: asyncio.CancelledError | None = None
    while not making.done():
        try:
            await asyncio.wait((making,))
        except asyncio.CancelledError as again:  # asyncio handles one itself, and would leave the child at the second
            left = again
    if left is None:
        return making.result()
    if not making.cancelled() and making.exception() is None:
        await end_child(making.result())
    raise left


async def end_child(process: Process) -> None:
    """Kill a child that still runs, with all of its session's group, wait for its end, and close its pipes.

    podman's own background processes (conmon, pause) lead groups of their own, and live on. Waits even if the caller
    is cancelled, however often: asyncio would report an unawaited end to a closed loop.
    """
    left: asyncio.CancelledError | None = None
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
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
    """Yield the lines that `process` writes to stdout, until it closes the stream.

    Raises:
        TimeoutError: no output came for `silence_s` seconds.
    """
    assert process.stdout is not None  # noqa: S101 - `child_running` always makes this pipe
    splitter = LineSplitter()
    while chunk := await asyncio.wait_for(process.stdout.read(_CHUNK), silence_s):
        for line in splitter.feed(chunk):
            yield line
    for line in splitter.rest():
        yield line
