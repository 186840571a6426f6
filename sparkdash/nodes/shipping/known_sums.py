"""Checksums of files seen before, so that a file is hashed at first sight only.

Owns: the index: node, path, size and time of change to sha256. Must not know how files are hashed.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import threading
from pathlib import Path
from typing import Any

MOST = 20_000
"""Files that are remembered; the oldest are forgotten."""


class KnownSums:
    """Index of checksums in one file, shared by programs and threads. A file that cannot be read counts as empty."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._new: dict[str, list[Any]] = {}
        self._found = self._read()

    def find(self, node: str, path: str, size: int, mtime_ns: int) -> str | None:
        """Return the checksum of a file that has not changed since it was hashed; None if it is not known."""
        with self._lock:
            entry = self._new.get(f"{node}:{path}") or self._found.get(f"{node}:{path}")
        return str(entry[2]) if entry and entry[:2] == [size, mtime_ns] else None

    def add(self, node: str, path: str, size: int, mtime_ns: int, sha256: str) -> None:
        """Remember a checksum; `save` writes it down."""
        with self._lock:
            self._new[f"{node}:{path}"] = [size, mtime_ns, sha256]

    def save(self) -> None:
        """Write down what was added, beside what other programs have written; a full disk loses only time."""
        with self._lock, contextlib.suppress(OSError):
            if not self._new:
                return
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with self._file.with_suffix(".lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                kept = {key: value for key, value in self._read().items() if key not in self._new} | self._new
                self._found = dict(list(kept.items())[-MOST:])
                new = self._file.with_suffix(".new")
                new.write_text(json.dumps(self._found), encoding="utf-8")
                new.replace(self._file)
            self._new.clear()

    def _read(self) -> dict[str, list[Any]]:
        try:
            found = json.loads(self._file.read_bytes())
        except (OSError, ValueError):
            return {}
        if not isinstance(found, dict):
            return {}
        return {key: entry for key, entry in found.items() if isinstance(entry, list) and len(entry) == 3}
