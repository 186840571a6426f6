"""The page cache of single files: what the kernel keeps of them in memory may be let go.

Owns: the advice to the kernel, file by file. Must not know whose files they are, or why.
Rule: read-only and scoped. `/proc/sys/vm/drop_caches` needs root and takes every program's cache; this needs the right
to read a file, takes the clean pages of that file alone, and leaves those that a process has mapped.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path


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
