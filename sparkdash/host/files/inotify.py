"""Watch on folders by inotify(7).

Owns: the descriptor, and which changes count. Must not know the content of the folders, nor who reads them.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_CLOSE_WRITE, _MOVED_FROM, _MOVED_TO, _CREATE, _DELETE, _DELETE_SELF, _MOVE_SELF = (
    0x8,
    0x40,
    0x80,
    0x100,
    0x200,
    0x400,
    0x800,
)
_CHANGES = _CLOSE_WRITE | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE | _DELETE_SELF | _MOVE_SELF
_EVENTS_BYTES = 65536


class Inotify:
    """Watch on folders; its descriptor becomes readable after a change."""

    def __init__(self, descriptor: int, libc: ctypes.CDLL) -> None:
        self.descriptor = descriptor
        self._libc = libc

    def watch(self, folder: Path) -> bool:
        """Watch this folder from now on; a repeated call is harmless.

        Return False if the folder is missing, or the kernel watches no more folders.

        Blocks as long as the folder's file system does. Changes that another box makes on a network file system are not
        reported.
        """
        added: int = self._libc.inotify_add_watch(self.descriptor, os.fsencode(folder), _CHANGES)
        return added >= 0

    def drain(self) -> None:
        """Discard the reports so far."""
        with suppress(BlockingIOError):
            while os.read(self.descriptor, _EVENTS_BYTES):
                pass


@contextmanager
def watch_folders(changed: Callable[[], object]) -> Iterator[Inotify | None]:
    """Call `changed` on this loop after each change of a watched folder. Yields None if the kernel has no inotify."""
    found = _opened()
    if found is None:
        yield None
        return

    def told() -> None:
        found.drain()
        changed()

    loop = asyncio.get_running_loop()
    loop.add_reader(found.descriptor, told)
    try:
        yield found
    finally:
        loop.remove_reader(found.descriptor)
        os.close(found.descriptor)


def _opened() -> Inotify | None:
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        descriptor: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, AttributeError):  # a libc without inotify
        return None
    return Inotify(descriptor, libc) if descriptor >= 0 else None
