"""Rate at which this box reads weights from its disk: measured by `sparkdash doctor disk`, and kept for first loads."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from sparkdash import paths
from sparkdash.domain.metric import DiskRate
from sparkdash.host.memory import page_cache
from sparkdash.units import GIB, MIB

MOST_BYTES, MOST_S = 2 * GIB, 2.0
"""Where a measurement ends, whichever comes first."""
LEAST_BYTES = 64 * MIB
"""Shorter readings tell little; a slow disk needs a second for so many."""


def measure(files: Iterable[Path]) -> DiskRate | None:
    """Read the largest of `files` that is not in memory, in one stream for MOST_S; keep the rate. Raises OSError.

    None: each is too small, or mapped by an engine.
    """
    for file in sorted(files, key=lambda one: -one.stat().st_size):
        page_cache.forget(file)
        with file.open("rb") as opened:
            if file.stat().st_size < LEAST_BYTES or page_cache.cached_bytes(opened.fileno()):
                continue
        read, began, took = 0, time.monotonic(), 0.0
        for piece in page_cache.read_uncached(file):
            read, took = read + len(piece), time.monotonic() - began
            if read >= MOST_BYTES or took >= MOST_S:
                break
        found = DiskRate(str(file), read, took)
        _file().parent.mkdir(parents=True, exist_ok=True)
        paths.replace_file(_file(), json.dumps({"bytes_per_s": found.bytes_per_s}).encode())
        return found
    return None


def kept() -> float | None:
    """Return the kept rate in bytes a second; None where nothing was measured."""
    with suppress(OSError, ValueError, RecursionError, TypeError, KeyError):
        return float(json.loads(paths.read_small_file(_file()))["bytes_per_s"]) or None
    return None


def _file() -> Path:
    return paths.state_dir() / "disk.json"
