"""Text of a profile file, read without ever waiting for it.

Owns: what may be read at all: an ordinary file of a bounded size, in UTF-8. Must not know YAML.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

MAX_BYTES = 1_000_000
"""Limit of a profile file. The largest shipped one has 20 KB; 26 MB of YAML took 19 s to read."""
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class UnreadableFileError(Exception):
    """Reason why a file is not read, as the rest of a sentence that begins with the file."""


def read_profile_text(path: Path) -> str:
    """Read the whole file.

    Raises:
        UnreadableFileError: it is no ordinary file, too large, not UTF-8, or cannot be opened.
    """
    try:
        _refuse_special(path.stat().st_mode)  # before it is opened: a device may act on that
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            _refuse_special(os.fstat(file.fileno()).st_mode)
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UnreadableFileError(f"it cannot be read: {error.strerror}") from None
    if len(data) > MAX_BYTES:
        raise UnreadableFileError(f"it is larger than {MAX_BYTES // 1_000_000} MB, which no profile file is")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise UnreadableFileError("it is not UTF-8 text") from None


def _refuse_special(mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise UnreadableFileError(f"it is {_KINDS.get(stat.S_IFMT(mode), 'no ordinary file')}, and not a file")
