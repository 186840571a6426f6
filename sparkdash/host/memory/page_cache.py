"""Page cache of single files: counting their cached bytes, advising the kernel to drop them, and the disk's own rate.

Rule: read-only and scoped. `/proc/sys/vm/drop_caches` needs root and drops every program's cache. This advice needs the
right to read a file, drops the clean pages of that file alone, and leaves pages that a process has mapped.
"""

import ctypes
import json
import os
import resource
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from sparkdash import paths
from sparkdash.domain.metric import DiskRate
from sparkdash.units import GIB, MIB

PIECE = GIB
"""Bytes of one advice, so that a time limit holds within a large file. 1 GiB takes 4 to 60 ms (Linux 6.18)."""
_CACHESTAT = 451
"""Number of cachestat(2), the same on every architecture (Linux 6.5)."""
_LIBC = ctypes.CDLL(None, use_errno=True)


def forget(file: Path) -> int:
    """Drop the cached pages of `file` (POSIX_FADV_DONTNEED); return its size. Raises OSError."""
    opened = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.posix_fadvise(opened, 0, 0, os.POSIX_FADV_DONTNEED)
        return os.fstat(opened).st_size
    finally:
        os.close(opened)


def cached_bytes(descriptor: int) -> int | None:
    """Return an open file's cached bytes; None before kernel 6.5, or if this user neither owns nor may write it."""
    asked, told = (ctypes.c_uint64 * 2)(0, 0), (ctypes.c_uint64 * 5)()
    if _LIBC.syscall(_CACHESTAT, descriptor, ctypes.byref(asked), ctypes.byref(told), 0) != 0:
        return None
    return int(told[0]) * resource.getpagesize()


def forget_up_to(files: Iterable[Path], wanted: int, limit_s: float) -> int | None:
    """Drop files from the cache in turn until `wanted` bytes are freed or `limit_s` is over. Blocks: use a thread.

    Returns the freed bytes; None if this user may not count the cached pages of an advised file.
    """
    until, gone, counted = time.monotonic() + limit_s, 0, True
    for file in files:
        if gone >= wanted or time.monotonic() >= until:
            break
        with suppress(OSError):  # removed or not readable: try the next one
            opened = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
            try:
                before = cached_bytes(opened)
                if before == 0:
                    continue
                _in_pieces(opened, until)
                after = cached_bytes(opened)
            finally:
                os.close(opened)
            if before is None or after is None:
                counted = False
            else:
                gone += max(0, before - after)
    return gone if counted or gone >= wanted else None


def forget_range(descriptor: int, start: int, end: int) -> int | None:
    """Drop the pages between two offsets of an open file; return the freed bytes, None if they cannot be counted.

    Raises OSError: the file system takes no advice.
    """
    before = cached_bytes(descriptor)
    if before == 0:
        return 0
    os.posix_fadvise(descriptor, start, end - start, os.POSIX_FADV_DONTNEED)
    after = cached_bytes(descriptor)
    return None if before is None or after is None else max(0, before - after)


def _in_pieces(descriptor: int, until: float) -> None:
    for start in range(0, os.fstat(descriptor).st_size, PIECE):
        if time.monotonic() >= until:
            return
        os.posix_fadvise(descriptor, start, PIECE, os.POSIX_FADV_DONTNEED)


WINDOW = 64 << 20
"""Bytes that may stay cached behind the current offset."""
_PIECE = 1 << 20


def read_uncached(file: Path) -> Iterator[memoryview]:
    """Read `file` in pieces of 1 MiB, each valid until the next, and drop pages once read; mapped ones stay."""
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


MOST_BYTES, MOST_S = 2 * GIB, 2.0
"""Where a measurement ends, whichever comes first."""
LEAST_BYTES = 64 * MIB
"""Shorter readings tell little; a slow disk needs a second for so many."""


def measure_disk_rate(files: Iterable[Path]) -> DiskRate | None:
    """Read the largest of `files` that is not in memory, in one stream for MOST_S; keep the rate. Raises OSError.

    None: each is too small, or mapped by an engine.
    """
    for file in sorted(files, key=lambda one: -one.stat().st_size):
        forget(file)
        with file.open("rb") as opened:
            if file.stat().st_size < LEAST_BYTES or cached_bytes(opened.fileno()):
                continue
        read, began, took = 0, time.monotonic(), 0.0
        for piece in read_uncached(file):
            read, took = read + len(piece), time.monotonic() - began
            if read >= MOST_BYTES or took >= MOST_S:
                break
        found = DiskRate(str(file), read, took)
        _rate_file().parent.mkdir(parents=True, exist_ok=True)
        paths.replace_file(_rate_file(), json.dumps({"bytes_per_s": found.bytes_per_s}).encode())
        return found
    return None


def kept_disk_rate() -> float | None:
    """Return the kept rate in bytes a second; None where nothing was measured."""
    with suppress(OSError, ValueError, RecursionError, TypeError, KeyError):
        return float(json.loads(paths.read_small_file(_rate_file()))["bytes_per_s"]) or None
    return None


def _rate_file() -> Path:
    return paths.state_dir() / "disk.json"
