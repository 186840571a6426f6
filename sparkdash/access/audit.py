"""Audit: who changed what, when; JSON lines in `audit.jsonl` of the state folder.

Owns: the file and its size. Must not know HTTP, and never gets a secret.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from sparkdash import paths
from sparkdash.units import MIB

FILE_NAME = "audit.jsonl"
LIMIT = 8 * MIB
"""Bytes after which the file is moved aside, once: so much again is kept in `audit.jsonl.old`."""


def place() -> Path:
    """Where this user's daemon keeps it."""
    return paths.state_dir() / FILE_NAME


def append(path: Path, entry: Mapping[str, object], *, limit: int = LIMIT) -> None:
    """One line at the end; blocks for a write. Raises OSError."""
    line = json.dumps(entry, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace") + b"\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, line)  # one write, so that lines of two processes do not mix
        if os.fstat(descriptor).st_size > limit:
            path.replace(path.with_name(f"{path.name}.old"))
    finally:
        os.close(descriptor)
