"""Where models lie on a disk: the cache of the Hugging Face hub, and files of a split model.

Standard library alone, Python 3.10: `nodes.programs` ships this module to other boxes.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from contextlib import suppress
from pathlib import Path

_SHARD = re.compile(r"(?P<before>.*)-\d{5}-of-(?P<count>\d{5})(?P<after>\.\w+)")


def repository_folder(hf_home: Path, repo: str) -> Path:
    return hf_home / "hub" / f"models--{repo.replace('/', '--')}"


def snapshot_folder(repository: Path, revision: str | None) -> Path | None:
    """Folder of a revision in the cache, by default of `main`; None without one."""
    commit = revision or "main"
    with suppress(OSError, ValueError):
        commit = read_small(repository / "refs" / commit, 1024).decode().strip()
    folder = repository / "snapshots" / commit
    return folder if commit and ".." not in commit and folder.is_dir() else None


def shard_names(name: str) -> list[str]:
    """Names of all files of a split model, in order, by the name of one of them; empty for any other name."""
    found = _SHARD.fullmatch(name)
    if not found:
        return []
    count = found["count"]
    return [f"{found['before']}-{number:05d}-of-{count}{found['after']}" for number in range(1, int(count) + 1)]


def read_small(file: Path, limit: int) -> bytes:
    """Read a small regular file; a pipe or device is none. Raises OSError."""
    with os.fdopen(os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as opened:
        found = opened.read(limit + 1) if stat.S_ISREG(os.fstat(opened.fileno()).st_mode) else b""
    if not found or len(found) > limit:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(file))
    return found
