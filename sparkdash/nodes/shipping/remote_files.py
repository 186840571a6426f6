"""Files of the receiving node: names that stay in their folder, temporary names, locks, the page cache.

Owns: what the receiver does to the disk. Must not know: requests, profiles, sparkdash. It is sent to the other node in
front of `receiver`, so it needs Python 3.9 and its standard library only.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import threading
from collections.abc import Iterator
from typing import Any

PART = ".sparkdash-part"
"""End of the name of a file that is not complete."""
STAGING = ".sparkdash-image"
"""End of the name of a folder that the receiver may remove."""
_WINDOW = 64 << 20
_NOT_BELOW = {"", ".", ".."}
"""Parts of a path that lead elsewhere than into the folder."""


class Refused(Exception):  # noqa: N818 - becomes an answer
    """Request that cannot be carried out: `code`, then facts."""

    def __init__(self, code: str, **facts: Any) -> None:
        super().__init__(code)
        self.facts = {"error": code, **facts}


def refuse_name(path: str) -> str | None:
    """Return what is wrong with a relative name; None for a good one."""
    parts = path.split("/")
    if not _NOT_BELOW.isdisjoint(parts):  # the first part of an absolute path is empty
        return "it leads out of its folder"
    try:
        encoded = path.encode()
    except UnicodeEncodeError:
        return "it is not UTF-8"
    if max(map(len, encoded.split(b"/"))) > 255 or len(encoded) > 4000 or len(parts) > 64:
        return "it is too long"
    if any(ord(letter) < 32 or ord(letter) == 127 for letter in path):
        return "it has control characters"
    return "it is a name of sparkdash's own" if parts[-1].endswith(PART) else None


def refuse_target(path: str, target: str) -> str | None:
    """Return what is wrong with the target of the link `path`; None for one that stays inside the root."""
    if target.startswith("/") or any(ord(letter) < 32 for letter in target) or len(target) > 4000:
        return "its target is no relative name"
    depth = path.count("/")
    for part in target.split("/"):
        depth += -1 if part == ".." else 0 if part in ("", ".") else 1
        if depth < 0:
            return "its target is outside the folder"
    return None


def part_name(name: str, ident: str) -> str:
    """Return the temporary name of a file. `ident` tells versions of the file apart."""
    return f".{name.encode()[:160].decode('utf-8', 'ignore')}.{ident}{PART}"


class WindowFlusher:
    """Writes windows of a growing file to the disk beside the receiving, and drops them from the page cache."""

    def __init__(self, opened: int, at: int) -> None:
        self._opened = opened
        self._settled = at
        self._thread: threading.Thread | None = None

    def reached(self, at: int) -> None:
        """Note the size reached; a full window begins to be written."""
        if at - self._settled >= _WINDOW:
            self.end()
            self._thread = threading.Thread(target=self._settle, args=(self._settled, at), daemon=True)
            self._thread.start()
            self._settled = at

    def end(self) -> None:
        """Wait for the window under way."""
        if self._thread is not None:
            self._thread.join()

    def _settle(self, start: int, end: int) -> None:
        with contextlib.suppress(OSError):  # the last flush, in the owner's thread, tells
            os.fdatasync(self._opened)
            forget_pages(self._opened, start, end)


@contextlib.contextmanager
def open_parent(root: str, name: str, *, make: bool) -> Iterator[tuple[int, str]]:
    """Open the folder of `name` below the root, following no link."""
    if why := refuse_name(name):
        raise Refused("bad_name", name=name[:200], why=why)
    *folders, last = name.split("/")
    here = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for folder in folders:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(folder, 0o755, dir_fd=here)
            try:
                below = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
            except OSError as error:
                if error.errno in (errno.ELOOP, errno.ENOTDIR):
                    raise Refused("bad_name", name=name, why=f"{folder} is no folder there") from None
                raise
            os.close(here)
            here = below
        yield here, last
    finally:
        os.close(here)


def stat_name(root: str, name: str, ident: str) -> list[Any]:
    """Look at a name: kind, size, mtime in ns, link target, bytes of its unfinished part."""
    try:
        with open_parent(root, name, make=False) as (folder, last):
            try:
                part = os.stat(part_name(last, ident), dir_fd=folder, follow_symlinks=False).st_size
            except FileNotFoundError:
                part = 0
            try:
                seen = os.stat(last, dir_fd=folder, follow_symlinks=False)
            except FileNotFoundError:
                return ["none", 0, 0, "", part]
            if stat.S_ISLNK(seen.st_mode):
                return ["link", 0, 0, os.readlink(last, dir_fd=folder), part]
            kind = "file" if stat.S_ISREG(seen.st_mode) else "other"
            return [kind, seen.st_size, seen.st_mtime_ns, "", part]
    except FileNotFoundError:
        return ["none", 0, 0, "", 0]


def real_path(root: str) -> str:
    """Resolve `~` and links."""
    return os.path.realpath(os.path.expanduser(root))


def made_path(root: str) -> str:
    """Make a folder; return its real path."""
    os.makedirs(real_path(root), exist_ok=True)
    return real_path(root)


def existing_path(place: str) -> str:
    """Return the nearest folder above that exists."""
    here = real_path(place)
    while not os.path.exists(here):
        here = os.path.dirname(here)
    return here


def lock_part(opened: int, part: str, folder: int) -> None:
    """Lock an unfinished file against other senders; raises Refused `busy`."""
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.stat(part, dir_fd=folder, follow_symlinks=False).st_ino == os.fstat(opened).st_ino:
            return
    except (BlockingIOError, FileNotFoundError):  # not found: its other writer has just completed it
        pass
    raise Refused("busy", name=part)


def unlink_unlocked(path: str, folder: int | None = None) -> bool:
    """Remove an unfinished file unless somebody writes it; whether it is removed."""
    with contextlib.suppress(OSError):
        opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(path, dir_fd=folder)
            return True
        finally:
            os.close(opened)
    return False


def drop_older_parts(folder: int, last: str, part: str) -> None:
    """Remove parts of other versions of the same file."""
    begin = part_name(last, "")[: -len(PART)]
    for other in os.listdir(folder):
        ours = other.startswith(begin) and other.endswith(PART) and other != part
        if ours and "." not in other[len(begin) : -len(PART)]:
            unlink_unlocked(other, folder)


def write_all(opened: int, data: memoryview) -> None:
    """Write all of `data`."""
    while data:
        data = data[os.write(opened, data) :]


def forget_pages(opened: int, start: int, end: int) -> None:
    """Drop a range of a file from the page cache."""
    with contextlib.suppress(OSError):
        os.posix_fadvise(opened, start, end - start, os.POSIX_FADV_DONTNEED)
