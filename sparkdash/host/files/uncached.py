"""Large files read and written without leaving them in the page cache.

Owns: the advice to the kernel while a file is read or written. Must not know what the files are.

Reason: hashing 110 GB on a GB10 left 115 GB cached, and the box powered off two times of nine (field report of its owners).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

WINDOW = 64 << 20
"""Bytes that may stay cached behind the place that is read or written."""
_PIECE = 1 << 20


def pieces(file: Path) -> Iterator[memoryview]:
    """The content of `file` in pieces of 1 MiB, each valid until the next. Pages go once they are read; those of others stay mapped."""
    buffer, at, told = memoryview(bytearray(_PIECE)), 0, 0
    with file.open("rb", buffering=0) as opened:
        while count := opened.readinto(buffer):
            yield buffer[:count]
            at += count
            if at - told >= WINDOW:
                _advise(opened.fileno(), told, at)
                told = at
        _advise(opened.fileno(), told, 0)


class Uncached:
    """A file opened for writing that is brought to the disk, and let go of, window by window. All else is the file's own.

    Only clean pages can go, so that each window waits for the disk: 64 MiB take 30 ms where it writes 2 GB/s.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._settled = file.tell()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, data: bytes) -> int:
        """Write; once a window is full, settle it."""
        count = self._file.write(data)
        if (at := self._file.tell()) - self._settled >= WINDOW:
            self._file.flush()
            os.fdatasync(self._file.fileno())
            _advise(self._file.fileno(), self._settled, at)
            self._settled = at
        return count


def settle(file: Path) -> None:
    """Have what was written of `file` on the disk, and none of it in the page cache."""
    opened = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fdatasync(opened)
        _advise(opened, 0, 0)
    finally:
        os.close(opened)


def _advise(descriptor: int, start: int, end: int) -> None:
    """`end` 0 is the end of the file. A file system that takes no advice is left alone."""
    try:
        os.posix_fadvise(descriptor, start, end - start if end else 0, os.POSIX_FADV_DONTNEED)
    except OSError:
        return
