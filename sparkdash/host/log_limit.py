"""Size limit for logs of processes that outlive the daemon, applied while they write.

The beginning becomes a hole that takes no disk space. The end stays where the process writes and a reader reads, so no
line is lost. On a file system without holes the file is emptied. All functions block.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import mmap
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from io import FileIO
from pathlib import Path

from sparkdash.host.thread import in_thread
from sparkdash.units import MIB

LIMIT = 64 * MIB
"""Bytes on disk above which a log's beginning is freed, as podman's limit; half of it is kept."""
_SECTOR = 512
"""Unit of st_blocks, on every file system."""
_PUNCH_KEEPING_SIZE = 0x3
_ALIGN = 64 * 1024
"""Alignment of a hole's end: the kernel zeroes a partly freed block, and a reader would take zeros for text."""


def limit_log(path: Path) -> None:
    """Free the beginning of a log that is too large; a log that cannot be freed stays as it is."""
    with suppress(OSError):
        status = path.stat()
        if status.st_blocks * _SECTOR > LIMIT:
            end = (status.st_size - LIMIT // 2) // _ALIGN * _ALIGN
            with path.open("rb+") as file:
                libc = ctypes.CDLL(None, use_errno=True)
                if libc.fallocate(file.fileno(), _PUNCH_KEEPING_SIZE, ctypes.c_long(0), ctypes.c_long(end)):
                    file.truncate(0)


def first_kept(descriptor: int, offset: int = 0) -> int:
    """Offset of the first kept bytes from `offset` on; the file's end without any. Moves the descriptor."""
    size = os.fstat(descriptor).st_size
    if size < offset:  # it was emptied
        return 0
    try:
        return os.lseek(descriptor, offset, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return size
        return offset  # a file system without SEEK_DATA


def open_at(log: Path, tail: int | None) -> FileIO:
    """Open the log at its start or at its last `tail` lines. Unbuffered, since holes in it are skipped."""
    file = FileIO(log)
    begin = first_kept(file.fileno())
    size = file.seek(0, os.SEEK_END)
    if size > begin and tail != 0:
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
            if begin:  # in the middle of a line
                begin = text.find(b"\n", begin) + 1 or begin
            file.seek(begin if tail is None else _tail_offset(text, begin, size, tail))
    return file


def _tail_offset(text: mmap.mmap, begin: int, size: int, tail: int) -> int:
    cut = size - 1  # the last byte belongs to the last line, newline or not
    for _ in range(tail):
        cut = text.rfind(b"\n", begin, cut)
        if cut < 0:
            return begin
    return cut + 1


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
