"""Audit log: changes with their author and time, as JSON lines in `audit.jsonl` of the state folder.

Owns: the file and its size. Must not know HTTP, and never receives a secret.
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
"""Size at which the file becomes `audit.jsonl.old`, so that twice as much is kept."""


def audit_file() -> Path:
    """Path of this user's audit log."""
    return paths.state_dir() / FILE_NAME


def append_entry(path: Path, entry: Mapping[str, object], *, limit: int = LIMIT) -> None:
    """Append one line; blocks for a write. Raises OSError."""
    line = json.dumps(entry, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace") + b"\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, line)  # one write, so that lines of two processes do not mix
        if os.fstat(descriptor).st_size > limit:
            path.replace(path.with_name(f"{path.name}.old"))
    finally:
        os.close(descriptor)
