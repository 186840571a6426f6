"""Size limit for logs of processes that outlive the daemon: a log that is too large is emptied, as podman does it.

All functions but the last block.
"""

import asyncio
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from io import FileIO
from pathlib import Path

from sparkdash.host.thread import in_thread
from sparkdash.units import MIB

_CHUNK = 1 << 16
LIMIT = 64 * MIB
"""Bytes above which a log is emptied, as podman's limit."""


def limit_log(path: Path) -> None:
    """Empty a log that is too large, while its process goes on writing; one that cannot be emptied stays."""
    with suppress(OSError):
        if path.stat().st_size > LIMIT:
            os.truncate(path, 0)


def open_at(log: Path, tail: int | None) -> FileIO:
    """Open the log at its start or at its last `tail` lines. Unbuffered, since it may be emptied meanwhile."""
    file = FileIO(log)
    if tail is not None:
        file.seek(_tail_offset(file.fileno(), tail))
    return file


def _tail_offset(descriptor: int, tail: int) -> int:
    """Offset of the last `tail` lines, without a map: one of a file that is emptied would end the daemon."""
    size = os.fstat(descriptor).st_size
    end = size - 1  # the last byte belongs to the last line, newline or not
    while tail and end > 0:
        start = max(0, end - _CHUNK)
        piece = os.pread(descriptor, end - start, start)
        end = piece.rfind(b"\n")
        while tail > 1 and end >= 0:
            tail, end = tail - 1, piece.rfind(b"\n", 0, end)
        if end >= 0:
            return start + end + 1
        end = start
    return 0 if tail else size


LOOK_S = 30.0
"""Pause between two checks: an engine that writes 10 MB a second exceeds the limit by a few hundred MB at most."""


async def limit_logs(files: Callable[[], Iterable[Path]]) -> None:
    """Limit the logs until cancelled; `files` is called each time, in a thread."""

    def look() -> None:
        for file in files():
            limit_log(file)

    while True:
        await asyncio.sleep(LOOK_S)
        await in_thread(look)
