"""MarkJournal: rows that people are told of at once, in a small file beside the database until it has them.

Owns: the file. Must not know when rows are written, nor the use of them.

A swap's end, a kill or a notice reaches clients in the moment in which it is recorded, and the database has it some
milliseconds later. A daemon that is killed between leaves it in this file, for the next daemon to write. Appending
costs microseconds and waits for no disk: the kernel has the line, which is enough for all but a power failure.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

import structlog

from sparkdash.store import rows

LOG = structlog.get_logger("sparkdash.store")
SUFFIX = "-marks"
MOST_BYTES = 16 * 2**20
"""Size at which nothing more is added: the database has been unwritable for long."""
_NAMES = {statement: name for name, statement in rows.REPLAYED.items()}


class MarkJournal:
    """Rows beside the database in `path`."""

    def __init__(self, path: Path) -> None:
        self._path = Path(f"{path}{SUFFIX}")
        self._file: int | None = None
        self._bytes = 0
        self.added = 0
        """Rows that this daemon added."""

    def read(self) -> list[tuple[str, rows.Row]]:
        """Read the rows that an earlier daemon left, with statements that write none of them twice."""
        with suppress(OSError):
            lines = self._path.read_bytes().splitlines()
            return [found for line in lines if (found := _parse(line)) is not None]
        return []

    def add(self, statement: str, row: rows.Row) -> None:
        """Append a row. A full disk is no error here: the row waits in memory, as all others do."""
        self.added += 1
        line = json.dumps([_NAMES[statement], row]).encode() + b"\n"
        if self._bytes + len(line) > MOST_BYTES:
            return
        try:
            if self._file is None:
                self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            self._bytes += os.write(self._file, line)
        except OSError as error:
            LOG.debug("a row is not in the journal", path=str(self._path), why=str(error))

    def written(self, added: int) -> None:
        """Empty the file if no row came after the first `added` ones, which the database has."""
        if added == self.added:
            with suppress(OSError):
                os.truncate(self._path, 0)
            self._bytes = 0

    def close(self) -> None:
        """Close the file, and remove it if it is empty."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
        with suppress(OSError):
            if not self._path.stat().st_size:
                self._path.unlink()


def _parse(line: bytes) -> tuple[str, rows.Row] | None:
    """Read a line; None for a torn one, and for one of another version."""
    with suppress(ValueError, KeyError, TypeError):
        name, row = json.loads(line)
        return rows.ONCE.get(name, rows.REPLAYED[name]), tuple(row)
    return None
