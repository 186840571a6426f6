"""Journal of a run: the one writer of records.jsonl, which only ever grows.

Owns: the durability of records, the lock against a second writer. Must not know: what the figures mean.
Rule: a record is with the kernel when `append` returns (a killed process loses nothing), and on the disk when `sync`
returns (a power cut loses what came after it).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from sparkdash.bench.records import CellRecord, LaunchRecord, RequestSample
from sparkdash.errors import AdmissionError, HostError

RECORDS = "records.jsonl"


class Journal:
    """The one writer of a run's records: `with Journal(place) as journal: journal.append(sample); journal.sync()`.

    Entering takes a lock that ends with the process, and cuts off a line that a power cut left torn.

    Raises (on entering):
        AdmissionError: `run_busy`: another process is measuring this run.
        HostError: `run_unwritable`.
    """

    def __init__(self, place: Path) -> None:
        self._path = place / RECORDS
        self._file: IO[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            file = self._path.open("a+b")
        except OSError as error:
            raise run_unwritable(self._path.parent, error) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise AdmissionError(
                f"The run {self._path.parent.name} is being measured by another process.", code="run_busy", status=409
            ) from None
        file.truncate(_whole(file))
        self._file = file
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):  # a full disk was told of by append
                file.close()

    def append(self, record: LaunchRecord | RequestSample | CellRecord) -> None:
        """Write one record; it outlives the process.

        Raises:
            HostError: `run_unwritable`: the disk is full.
        """
        file = self._opened()
        try:
            file.write(record.model_dump_json().encode() + b"\n")
            file.flush()
        except OSError as error:
            raise run_unwritable(self._path.parent, error) from error

    def sync(self) -> None:
        """Wait until all records are on the disk: after each launch and each cell.

        Raises:
            HostError: `run_unwritable`.
        """
        file = self._opened()
        try:
            file.flush()
            os.fsync(file.fileno())
        except OSError as error:
            raise run_unwritable(self._path.parent, error) from error

    def _opened(self) -> IO[bytes]:
        if self._file is None:
            raise RuntimeError("a journal writes inside `with` only")
        return self._file


def _whole(file: IO[bytes]) -> int:
    """Return the bytes up to the end of the last whole line."""
    end = file.seek(0, os.SEEK_END)
    while end:
        start = max(0, end - 65536)
        file.seek(start)
        if (last := file.read(end - start).rfind(b"\n")) >= 0:
            return start + last + 1
        end = start
    return 0


def run_unwritable(place: Path, error: OSError) -> HostError:
    """Return the error of a run folder that cannot be written."""
    return HostError(
        f"{place} cannot be written: {error.strerror}.",
        code="run_unwritable",
        hint="Free disk space, or fix the folder's permissions.",
    )
