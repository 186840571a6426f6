"""Opens and read positions of files, by inotify(7) and /proc."""

import ctypes
import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Self

_OPEN, _CLOSE, _OVERFLOW = 0x20, 0x8 | 0x10, 0x4000
_EVENT = struct.Struct("iIII")
_OPENS_BYTES = 1 << 16


class OpenReport(NamedTuple):
    """Report that a file was opened, or (False) that an open of it has ended."""

    file: int
    """Descriptor of the file in this process."""
    opened: bool


class FileOpens:
    """Watches all files that can be opened, each by a descriptor of its own; `sizes` has their bytes."""

    def __init__(self, files: Iterable[Path]) -> None:
        self.sizes: dict[int, int] = {}
        self._inodes: dict[tuple[int, int], int] = {}
        self._watches: dict[int, int] = {}
        libc = ctypes.CDLL(None, use_errno=True)
        self.descriptor: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self.descriptor < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")
        for path in files:
            with suppress(OSError):  # removed, or not readable for this user
                file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # before the watch, to avoid a report of our own open
                found = os.fstat(file)
                watch = libc.inotify_add_watch(self.descriptor, os.fsencode(path), _OPEN | _CLOSE)
                if watch < 0:
                    os.close(file)
                    continue
                self.sizes[file], self._watches[watch] = found.st_size, file
                self._inodes[found.st_dev, found.st_ino] = file

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in (self.descriptor, *self.sizes):
            os.close(descriptor)

    def reports(self) -> Iterator[OpenReport | None]:
        """Yield reports since the last call; None if some were lost, so that earlier counts are void."""
        with suppress(BlockingIOError):
            while data := os.read(self.descriptor, _OPENS_BYTES):
                at = 0
                while at < len(data):
                    watch, mask, _, name = _EVENT.unpack_from(data, at)
                    at += _EVENT.size + name
                    if mask & _OVERFLOW:
                        yield None
                    elif (file := self._watches.get(watch)) is not None and mask & (_OPEN | _CLOSE):
                        yield OpenReport(file, bool(mask & _OPEN))

    def positions(self, pids: Iterable[int], proc: Path = Path("/proc")) -> dict[int, int]:
        """Read position of each watched file in bytes, of the slowest of these processes, without direct I/O."""
        found: dict[int, int] = {}
        for pid in pids:
            with suppress(OSError):  # ended, or another user's
                for link in (proc / str(pid) / "fd").iterdir():
                    with suppress(OSError, ValueError, KeyError):
                        stat = link.stat()
                        file = self._inodes[stat.st_dev, stat.st_ino]
                        told = _told(proc / str(pid) / "fdinfo" / link.name)
                        if not int(told["flags"], 8) & os.O_DIRECT:
                            found[file] = min(found.get(file, stat.st_size), int(told["pos"]))
        return found


def _told(fdinfo: Path) -> Mapping[str, str]:
    return dict(line.split(":\t", 1) for line in fdinfo.read_text().splitlines() if ":\t" in line)
