"""Reader of the kernel's log, as far as this user may read it.

/dev/kmsg needs root or CAP_SYSLOG if `kernel.dmesg_restrict` is 1; journalctl needs the group adm or systemd-journal.
Rule: read on demand only. Nothing runs while no engine loads and no caller asks.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Protocol

from sparkdash.host import command
from sparkdash.host.kernel_lines import KernelFindings, KernelLine, findings, read_line
from sparkdash.host.thread import in_thread
from sparkdash.units import MIB

KMSG = Path("/dev/kmsg")
NOT_READABLE = "The kernel's log is not readable: it needs the group adm or systemd-journal."
READ_S = 3.0
"""Deadline of one reading; journalctl takes 0.1 s for a day."""
LINES = 20_000
"""Newest lines of the journal in one reading."""
OUTPUT_LIMIT = 8 * MIB
RECORD_LIMIT = 8192
"""Longest record of /dev/kmsg in bytes."""
RECORDS_AT_ONCE = 1_000
"""Records of /dev/kmsg in one call; the rest comes with the next call."""
CLOCK_S = 2.0
"""Tolerated lag of the kernel's clock behind the box's."""
WAITING = 2_000
"""Lines buffered for a follower; older ones are dropped."""

_KERN = 0
"""Facility of the kernel's own records, which programs writing to /dev/kmsg cannot use."""
_JOURNAL_LINE = re.compile(r"(\d+\.\d+) \S+ kernel: (.*)")
_DENIED = re.compile(
    r"not seeing messages from other users|insufficient permissions|No journal files were|Failed to open"
    r"|Permission denied"
)


class KernelTail(Protocol):
    """New lines of the kernel's log during a `follow` block."""

    def news(self) -> tuple[KernelLine, ...]:
        """Return relevant lines since the last call; never waits."""
        ...


class KernelLog:
    """Kernel's log of this box."""

    def __init__(
        self,
        kmsg: Path = KMSG,
        journalctl: str = "journalctl",
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._kmsg = kmsg
        self._journalctl = journalctl
        self._wall = wall
        self._monotonic = monotonic

    async def since(self, unix_s: float) -> KernelFindings | None:
        """Read relevant lines since this moment, at most since the boot; None if the log is not readable."""
        with suppress(OSError, RuntimeError, TimeoutError):  # RuntimeError: the box has no thread left
            async with asyncio.timeout(READ_S):
                return await in_thread(lambda: findings(self._records(unix_s)))
        return await self._journal(unix_s)

    @asynccontextmanager
    async def follow(self) -> AsyncIterator[KernelTail | None]:
        """Follow the log for the length of the block; yields None if it is not readable."""
        descriptor = self._followed()
        if descriptor is not None:
            try:
                yield _Kmsg(descriptor, self._wall() - self._monotonic())
            finally:
                os.close(descriptor)
            return
        if await self._journal(self._wall()) is None:
            yield None
            return
        async with command.child_running(
            self._argv("--lines=0", "--follow"), stderr=asyncio.subprocess.DEVNULL
        ) as child:
            tail = _Journal()
            reading = asyncio.create_task(tail.read(child), name="kernel log")
            try:
                yield tail
            finally:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)

    def _followed(self) -> int | None:
        try:
            descriptor = self._open()
        except OSError:
            return None
        with suppress(OSError):
            os.lseek(descriptor, 0, os.SEEK_END)
        return descriptor

    def _open(self) -> int:
        return os.open(self._kmsg, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)

    def _records(self, unix_s: float) -> list[KernelLine]:
        descriptor = self._open()
        try:
            boot = self._wall() - self._monotonic()
            return [line for line in _lines(descriptor, boot) if line.at >= unix_s - CLOCK_S]
        finally:
            os.close(descriptor)

    async def _journal(self, unix_s: float) -> KernelFindings | None:
        argv = self._argv(f"--lines={LINES}", f"--since=@{max(int(unix_s), 0)}")
        try:
            text = await command.command_output(argv, deadline_s=READ_S, limit=OUTPUT_LIMIT)
        except (OSError, TimeoutError):
            return None
        lines = text.splitlines()
        if any(_DENIED.search(line) for line in lines if line[:1].isalpha()):
            return None
        return findings(line for line in _journal_lines(lines) if line.at >= unix_s - CLOCK_S)

    def _argv(self, *more: str) -> list[str]:
        return [self._journalctl, "--dmesg", "--output=short-unix", "--no-pager", *more]


class _Kmsg:
    """New records of /dev/kmsg."""

    def __init__(self, descriptor: int, boot: float) -> None:
        self._descriptor = descriptor
        self._boot = boot

    def news(self) -> tuple[KernelLine, ...]:
        with suppress(OSError):
            return findings(_lines(self._descriptor, self._boot, RECORDS_AT_ONCE)).lines
        return ()


class _Journal:
    """New lines of `journalctl --follow`."""

    def __init__(self) -> None:
        self._lines: deque[KernelLine] = deque(maxlen=WAITING)

    async def read(self, child: asyncio.subprocess.Process) -> None:
        async for text in command.stdout_lines(child):
            self._lines.extend(_journal_lines([text]))

    def news(self) -> tuple[KernelLine, ...]:
        found = findings(self._lines).lines
        self._lines.clear()
        return found


def _journal_lines(lines: Iterable[str]) -> Iterator[KernelLine]:
    for text in lines:
        if (found := _JOURNAL_LINE.match(text)) and (line := read_line(found[2], float(found[1]))):
            yield line


def _lines(descriptor: int, boot: float, most: int | None = None) -> Iterator[KernelLine]:
    """Read the present records (Documentation/ABI/testing/dev-kmsg). Raises OSError if they cannot be read."""
    taken = 0
    while most is None or taken < most:
        taken += 1
        try:
            record = os.read(descriptor, RECORD_LIMIT)
        except BlockingIOError:
            return
        except BrokenPipeError:  # overwritten meanwhile: the next read continues with the oldest record
            continue
        if not record:
            return
        head, _, text = record.decode("utf-8", "replace").partition(";")
        fields = head.split(",")
        if len(fields) < 3 or not fields[0].isdecimal() or int(fields[0]) >> 3 != _KERN:
            continue
        if line := read_line(text.partition("\n")[0], boot + int(fields[2]) / 1e6):
            yield line
