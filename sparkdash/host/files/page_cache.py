"""The page cache of single files: how much of them the kernel keeps in memory, and how to have it let go of them.

Owns: the advice to the kernel, and its count of cached pages. Must not know whose files they are, or why.
Rule: read-only and scoped. `/proc/sys/vm/drop_caches` needs root and takes every program's cache; this needs the right
to read a file, takes the clean pages of that file alone, and leaves those that a process has mapped.
"""

from __future__ import annotations

import ctypes
import os
import resource
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sparkdash.units import GIB

PIECE = GIB
"""Bytes of one advice, so that a limit of time is kept within a big file. 1 GiB takes 4 to 60 ms (Linux 6.18)."""
_CACHESTAT = 451
"""Number of cachestat(2), the same on every architecture (Linux 6.5)."""
_LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class LetGo:
    """What was advised."""

    files: int
    size: int
    """Bytes of those files, in memory or not."""
    skipped: int
    """Files that could not be opened, or whose file system takes no advice, or for which there was no time."""


def forget(file: Path) -> int:
    """Advise the kernel that nobody needs the pages of `file`; its size in bytes. posix_fadvise(2), POSIX_FADV_DONTNEED.

    Raises:
        OSError: it cannot be read, or its file system takes no advice.
    """
    opened = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.posix_fadvise(opened, 0, 0, os.POSIX_FADV_DONTNEED)
        return os.fstat(opened).st_size
    finally:
        os.close(opened)


def let_go(files: Iterable[Path], limit_s: float, advise: Callable[[Path], int] = forget) -> LetGo:
    """Advise for each file, and begin none after `limit_s`. It blocks: call it in a thread."""
    until, sizes, skipped = time.monotonic() + limit_s, [], 0
    for file in files:
        try:
            if time.monotonic() >= until:
                raise TimeoutError
            sizes.append(advise(file))
        except OSError:  # a pity, and nothing more
            skipped += 1
    return LetGo(len(sizes), sum(sizes), skipped)


def cached_bytes(descriptor: int) -> int | None:
    """Bytes of an open file that are in the page cache. None: a kernel before 6.5, or neither its owner nor a writer asks."""
    asked, told = (ctypes.c_uint64 * 2)(0, 0), (ctypes.c_uint64 * 5)()
    if _LIBC.syscall(_CACHESTAT, descriptor, ctypes.byref(asked), ctypes.byref(told), 0) != 0:
        return None
    return int(told[0]) * resource.getpagesize()


def forget_up_to(files: Iterable[Path], wanted: int, limit_s: float) -> int | None:
    """Forget files one after the other until `wanted` bytes are let go of, or `limit_s` is over. It blocks: call it in a thread.

    Returns the bytes let go of; None when files were advised whose cached pages this user may not count.
    """
    until, gone, counted = time.monotonic() + limit_s, 0, True
    for file in files:
        if gone >= wanted or time.monotonic() >= until:
            break
        with suppress(OSError):  # it has gone, or may not be read: the next one
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
    """Forget the pages of an open file between two of its bytes; the bytes let go of, None where they cannot be counted.

    Raises:
        OSError: its file system takes no advice.
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
