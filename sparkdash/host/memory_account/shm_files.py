"""Files in /dev/shm left behind by killed programs.

Owns: which names count (made by Python, NCCL, CUDA and PyTorch), and whether a process still uses the files. Must not
delete anything. Blocks: call it in a thread with a time limit, as a reader of `maps` hangs with a hanging process.

A SIGKILL of vLLM with the host's IPC leaves `psm_*` and `sem.mp-*` until the next boot.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from sparkdash.host.memory_account.pools import ShmFiles
from sparkdash.host.memory_account.process_table import ProcessMemory
from sparkdash.host.memory_account.remedies import SHM
from sparkdash.host.processes.proc import PROC
from sparkdash.units import MIB

LEAST = MIB
"""Least size of one user's files that is reported."""
YOUNG_S = 60.0
"""Least age of a file, as a program may not have mapped a younger one yet."""
BLOCK = 512
"""Bytes of a block as stat(2) counts."""

_NAMES = re.compile(r"(psm_|sem\.mp-|nccl-|torch_|cuda\.shm\.|vllm|sglang|ray_).*")


class _File(NamedTuple):
    key: tuple[int, int]
    """Device and inode."""
    name: str
    uid: int
    bytes: int
    age_s: float


def find_leftover_files(
    processes: Iterable[ProcessMemory],
    user: Callable[[int], str],
    folder: Path = Path(SHM),
    proc: Path = PROC,
    uid: int | None = None,
) -> tuple[ShmFiles, ...]:
    """Find files that no process of their owner uses, by owner. `uid` is the asking user.

    Only root sees all processes, so nothing is certain about other users' files.
    """
    asks = os.getuid() if uid is None else uid
    kept = _large_by_owner(_files(folder))
    users = [one for one in processes if asks == 0 or one.uid in kept] if kept else []
    used, whole = _used_by_any(users, proc)
    rows = []
    for owner, files in kept.items():
        unused = sorted((one for one in files if one.key not in used), key=lambda one: -one.bytes)
        if _size(unused) >= LEAST:
            rows.append(_row(user(owner), unused, own=asks in (0, owner), whole=whole))
    return tuple(rows)


def _large_by_owner(files: Iterable[_File]) -> dict[int, list[_File]]:
    """Old files by owner, of owners with LEAST bytes or more."""
    by_owner: dict[int, list[_File]] = {}
    for one in files:
        if one.age_s >= YOUNG_S:
            by_owner.setdefault(one.uid, []).append(one)
    return {owner: found for owner, found in by_owner.items() if _size(found) >= LEAST}


def _size(files: Iterable[_File]) -> int:
    return sum(one.bytes for one in files)


def _row(user: str, files: list[_File], *, own: bool, whole: bool) -> ShmFiles:
    names, oldest = tuple(one.name for one in files), max(one.age_s for one in files)
    return ShmFiles(user, _size(files), names, oldest, own=own, certain=whole and own)


def _files(folder: Path) -> list[_File]:
    found, now = [], time.time()
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if not _NAMES.fullmatch(entry.name) or not entry.is_file(follow_symlinks=False):
                    continue
                told = entry.stat(follow_symlinks=False)
                age = now - max(told.st_mtime, told.st_ctime)
                found.append(_File((told.st_dev, told.st_ino), entry.name, told.st_uid, told.st_blocks * BLOCK, age))
    except OSError:
        return found
    return found


def _used_by_any(processes: Iterable[ProcessMemory], proc: Path) -> tuple[set[tuple[int, int]], bool]:
    """(keys of the files that these processes use, whether they are known of every process)."""
    looked = [_used(one, proc) for one in processes]
    return {key for keys in looked if keys for key in keys}, None not in looked


def _used(one: ProcessMemory, proc: Path) -> set[tuple[int, int]] | None:
    """Files of shared memory that a process maps or has open; None if unknown.

    An unreadable process without shared memory (a login's helper) counts as using none.
    """
    unknown = None if one.shared else set[tuple[int, int]]()
    if one.stuck:
        return unknown
    folder = proc / str(one.pid)
    try:
        mapped = {_key(line) for line in (folder / "maps").read_text(errors="replace").splitlines() if SHM in line}
        opened = {_opened(folder / "fd" / name) for name in os.listdir(folder / "fd")}  # noqa: PTH208 - names suffice
    except FileNotFoundError:
        return set()
    except OSError:
        return unknown
    return (mapped | opened) - {(0, 0)}


def _key(line: str) -> tuple[int, int]:
    """Parse proc(5): address, permissions, offset, device as hexadecimal major:minor, inode."""
    words = line.split()
    major, _, minor = words[3].partition(":")
    return os.makedev(int(major, 16), int(minor, 16)), int(words[4])


def _opened(link: Path) -> tuple[int, int]:
    try:
        if not os.readlink(link).startswith(SHM):  # noqa: PTH115 - a string suffices
            return 0, 0
        told = link.stat()
    except OSError:  # closed meanwhile, or deleted
        return 0, 0
    return told.st_dev, told.st_ino
