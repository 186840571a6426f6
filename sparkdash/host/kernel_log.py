"""Reader of the kernel's log through journalctl, as far as this user may read it: the group adm or systemd-journal may.

Rule: read on demand only. Nothing runs while no engine loads and no caller asks.
"""

import asyncio
import re
import time
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager

from sparkdash.host import command
from sparkdash.host.kernel_lines import KernelFindings, KernelLine, findings, read_line
from sparkdash.units import MIB

NOT_READABLE = "The kernel's log is not readable: it needs the group adm or systemd-journal."
READ_S = 3.0
"""Deadline of one reading; journalctl takes 0.1 s for a day."""
LINES = 20_000
"""Newest lines of the journal in one reading."""
OUTPUT_LIMIT = 8 * MIB
CLOCK_S = 2.0
"""Tolerated lag of the kernel's clock behind the box's."""
WAITING = 2_000
"""Lines buffered for a follower; older ones are dropped."""

_JOURNAL_LINE = re.compile(r"(\d+\.\d+) \S+ kernel: (.*)")
_DENIED = re.compile(
    r"not seeing messages from other users|insufficient permissions|No journal files were|Failed to open"
    r"|Permission denied"
)


class KernelTail:
    """New lines of the kernel's log during a `follow` block."""

    def __init__(self) -> None:
        self._lines: deque[KernelLine] = deque(maxlen=WAITING)

    async def read(self, child: asyncio.subprocess.Process) -> None:
        async for text in command.stdout_lines(child):
            self._lines.extend(_journal_lines([text]))

    def news(self) -> tuple[KernelLine, ...]:
        """Return relevant lines since the last call; never waits."""
        found = findings(self._lines).lines
        self._lines.clear()
        return found


class KernelLog:
    """Kernel's log of this box. Only tests give `journalctl`."""

    def __init__(self, journalctl: str = "journalctl") -> None:
        self._journalctl = journalctl

    async def since(self, unix_s: float) -> KernelFindings | None:
        """Read relevant lines since this moment, at most since the boot; None if the log is not readable."""
        argv = self._argv(f"--lines={LINES}", f"--since=@{max(int(unix_s), 0)}")
        try:
            text = await command.command_output(argv, deadline_s=READ_S, limit=OUTPUT_LIMIT)
        except (OSError, TimeoutError):
            return None
        lines = text.splitlines()
        if any(_DENIED.search(line) for line in lines if line[:1].isalpha()):
            return None
        return findings(line for line in _journal_lines(lines) if line.at >= unix_s - CLOCK_S)

    @asynccontextmanager
    async def follow(self) -> AsyncIterator[KernelTail | None]:
        """Follow the log for the length of the block; yields None if it is not readable."""
        if await self.since(time.time()) is None:
            yield None
            return
        argv = self._argv("--lines=0", "--follow")
        async with command.child_running(argv, stderr=asyncio.subprocess.DEVNULL) as child:
            tail = KernelTail()
            reading = asyncio.create_task(tail.read(child), name="kernel log")
            try:
                yield tail
            finally:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)

    def _argv(self, *more: str) -> list[str]:
        return [self._journalctl, "--dmesg", "--output=short-unix", "--no-pager", *more]


def _journal_lines(lines: Iterable[str]) -> Iterator[KernelLine]:
    for text in lines:
        if (found := _JOURNAL_LINE.match(text)) and (line := read_line(found[2], float(found[1]))):
            yield line
