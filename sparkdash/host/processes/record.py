"""Records of started processes, by which a later daemon finds them.

Owns: a JSON file and a log file for each process, in one folder. Must not know how processes are started or ended.
"""

from __future__ import annotations

import errno
import re
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from sparkdash.domain.base import Frozen
from sparkdash.errors import HostError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


class ProcessRecord(Frozen):
    """Started process. `birth` is its `proc.birth`, which no later process has."""

    name: str
    pid: int
    birth: str
    labels: dict[str, str]
    argv: tuple[str, ...]
    stop_signal: str | None = None
    """Name of the signal that asks it to end; None: SIGTERM."""
    started_at: float
    """Unix seconds."""
    ended: bool = False
    exit_code: int | None = None
    """Exit code; None while the process runs, and for another's child."""


def unwritable(folder: Path, error: OSError) -> HostError:
    """Error for a folder in which nothing can be written."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    hint = "Make room on its disk." if full else "Make it writable, or choose another with SPARKDASH_STATE_DIR."
    code = "disk_full" if full else "state_unwritable"
    return HostError(f"Nothing can be written in {folder}: {error.strerror}.", code=code, hint=hint)


class ProcessRecords:
    """Folder of records. Only their owner may read the files, as an argv may hold secrets."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get(self, name: str) -> ProcessRecord | None:
        """Read the record of that name; None if it is missing or damaged."""
        try:
            return ProcessRecord.model_validate_json(self._file(name).read_bytes())
        except (OSError, ValidationError):
            return None

    def all(self) -> list[ProcessRecord]:
        """Read all records, sorted by name."""
        found = (self.get(file.stem) for file in sorted(self._folder.glob("*.json")))
        return [record for record in found if record]

    def put(self, record: ProcessRecord) -> None:
        """Write a record, whole or not at all. Raises HostError if that fails."""
        file, fresh = self._file(record.name), self._file(record.name, "new")
        try:
            fresh.touch(mode=0o600)
            fresh.write_text(record.model_dump_json(indent=1))
            fresh.replace(file)
        except OSError as error:
            with suppress(OSError):
                fresh.unlink(missing_ok=True)
            raise unwritable(self._folder, error) from None

    def forget(self, name: str) -> None:
        """Remove record and log. Idempotent."""
        self._file(name).unlink(missing_ok=True)
        self.log(name).unlink(missing_ok=True)

    def prepare(self) -> None:
        """Make the folder. Raises HostError if that fails."""
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise unwritable(self._folder, error) from None

    def logs(self) -> list[Path]:
        """Log files of all engines."""
        return list(self._folder.glob("*.log"))

    def log(self, name: str) -> Path:
        """Path of the process's log."""
        return self._file(name, "log")

    def _file(self, name: str, kind: str = "json") -> Path:
        if not _NAME.fullmatch(name):
            raise HostError(
                f"{name!r} cannot be the name of a process.", code="bad_name", hint="Letters, digits, . _ -"
            )
        return self._folder / f"{name}.{kind}"
