"""Large files read and written without leaving them in the page cache.

Owns: the advice to the kernel during reading and writing. Must not know the files' content.

Reason: hashing 110 GB on a GB10 left 115 GB cached, and the box powered off in two of nine cases (an owner's report).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

WINDOW = 64 << 20
"""Bytes that may stay cached behind the current offset."""
_PIECE = 1 << 20


def read_uncached(file: Path, start: int = 0) -> Iterator[memoryview]:
    """Read `file` from `start` in pieces of 1 MiB, each valid until the next, and drop pages once read; mapped ones
    stay.
    """
    buffer, at, told = memoryview(bytearray(_PIECE)), start, start
    with file.open("rb", buffering=0) as opened:
        opened.seek(start)
        while count := opened.readinto(buffer):
            yield buffer[:count]
            at += count
            if at - told >= WINDOW:
                _advise(opened.fileno(), told, at)
                told = at
        _advise(opened.fileno(), told, 0)


class Uncached:
    """File opened for writing, flushed to disk and dropped from the cache window by window; otherwise as the file.

    Only clean pages can be dropped, so each window waits for the disk: 64 MiB take 30 ms at 2 GB/s.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._settled = file.tell()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, data: bytes) -> int:
        """Write; flush and drop each full window."""
        count = self._file.write(data)
        if (at := self._file.tell()) - self._settled >= WINDOW:
            self._file.flush()
            os.fdatasync(self._file.fileno())
            _advise(self._file.fileno(), self._settled, at)
            self._settled = at
        return count


def flush_uncached(file: Path) -> None:
    """Flush `file` to disk and drop it from the page cache."""
    opened = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fdatasync(opened)
        _advise(opened, 0, 0)
    finally:
        os.close(opened)


def _advise(descriptor: int, start: int, end: int) -> None:
    """Advise the kernel to drop a range, up to the file's end with `end` 0; ignored by some file systems."""
    try:
        os.posix_fadvise(descriptor, start, end - start if end else 0, os.POSIX_FADV_DONTNEED)
    except OSError:
        return
