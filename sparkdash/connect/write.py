"""Changes of a client's files on this box: planning and writing.

Owns: the disk. A backup is kept beside each existing file, and a file is written whole or not at all.
"""

from __future__ import annotations

import difflib
import time
from dataclasses import dataclass
from pathlib import Path

from sparkdash.connect.merge import merge_file
from sparkdash.connect.recipe import ConfigFile
from sparkdash.errors import HostError
from sparkdash.locked_file import replace_file


@dataclass(frozen=True, slots=True)
class FileChange:
    """Old and new content of one file."""

    path: Path
    old: str | None
    """Content before; None when the file does not exist."""
    new: str

    @property
    def needed(self) -> bool:
        """Whether the content changes."""
        return self.old != self.new

    def diff(self) -> str:
        """Return the change as `diff -u` shows it; empty without one."""
        before, after = (self.old or "").splitlines(keepends=True), self.new.splitlines(keepends=True)
        lines = difflib.unified_diff(before, after, str(self.path), str(self.path))
        return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)


def plan_change(file: ConfigFile, path: Path) -> FileChange:
    """Plan the change of one file.

    Raises:
        AdmissionError: code `merge_refused`.
        HostError: code `file_unreadable`.
    """
    try:
        old = path.read_text("utf-8")
    except FileNotFoundError:
        old = None
    except (OSError, UnicodeDecodeError) as error:
        raise HostError(f"{path} cannot be read: {error}.", code="file_unreadable") from None
    return FileChange(path, old, merge_file(old or "", file))


def apply_change(change: FileChange) -> Path | None:
    """Write the change; return the backup of the old content. A symbolic link stays a link: dotfiles are often links.

    Raises:
        HostError: code `file_not_written`; then nothing was changed.
    """
    path = change.path.resolve()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        backup = _kept(path, change.old)
        replace_file(path, change.new.encode(), mode=path.stat().st_mode & 0o777 if change.old is not None else 0o600)
    except OSError as error:
        raise HostError(f"{path} cannot be written: {error.strerror}.", code="file_not_written") from None
    return backup


def _kept(path: Path, old: str | None) -> Path | None:
    if old is None:
        return None
    stamp = time.strftime("%Y%m%d-%H%M%S")
    backup = path.with_name(f"{path.name}.before-sparkdash-{stamp}")
    number = 1
    while backup.exists():
        number += 1
        backup = path.with_name(f"{path.name}.before-sparkdash-{stamp}-{number}")
    replace_file(backup, old.encode(), mode=path.stat().st_mode & 0o777)
    return backup
