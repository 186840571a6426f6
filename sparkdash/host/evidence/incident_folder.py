"""Folders of evidence, one for each incident, readable by their owner only.

Owns: names, permissions, the size of a file, and the number of folders. Must not know the content. All functions block.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from pathlib import Path

from sparkdash.limits import INCIDENTS, SUSPICIONS

FILE_LIMIT = 1 << 20
"""Limit of one file in bytes."""
CUT = b"\n[cut here: the file is limited to 1 MiB]\n"

_NAME = re.compile(r"\d{8}T\d{6}Z-.*")
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST = 80
"""Limit of a profile's name within a folder's name."""
_LIGHT = ".suspect"
"""Suffix of folders with light evidence."""


def create(parent: Path, profile: str, at: float, *, light: bool) -> Path:
    """Make a new folder. Raises OSError if that fails."""
    parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    safe = _UNSAFE.sub("_", profile)[:_LONGEST].strip(".") or "_"
    base = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(at))}-{safe}"
    for number in range(1, 100):
        made = parent / f"{base}{f'-{number}' if number > 1 else ''}{_LIGHT if light else ''}"
        try:
            made.mkdir(mode=0o700)
        except FileExistsError:
            continue
        return made
    raise FileExistsError(f"{parent / base} and its successors exist")


def write(folder: Path, name: str, text: str) -> None:
    """Write one file, cut at FILE_LIMIT. Raises OSError."""
    content = text.encode("utf-8", "replace")
    if len(content) > FILE_LIMIT:
        content = content[: FILE_LIMIT - len(CUT)] + CUT
    descriptor = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


def forget_old(newest: Path) -> None:
    """Remove the oldest folders of the same kind beyond the limit, never `newest`. Raises OSError if listing fails.

    Light evidence has a limit of its own, so that suspicions do not push out real hangs.
    """
    light = newest.name.endswith(_LIGHT)
    kept = SUSPICIONS if light else INCIDENTS
    alike = sorted(
        each
        for each in newest.parent.iterdir()
        if _NAME.fullmatch(each.name)
        and each.name.endswith(_LIGHT) == light
        and each != newest
        and not each.is_symlink()
    )
    for old in alike[: max(len(alike) + 1 - kept, 0)]:
        shutil.rmtree(old, ignore_errors=True)
