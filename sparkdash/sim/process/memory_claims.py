"""Claims of simulated engines on the simulated box, one small file per process.

Owns: the files' place, form and life. An engine writes its file atomically, and only after a change; SimBox reads them.
Must not know: what either does with it. Without SPARKDASH_SIM_DIR nothing is written.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path

FOLDER_VARIABLE = "SPARKDASH_SIM_DIR"
HEAD_FOLDER_VARIABLE = "SPARKDASH_SIM_HEAD_DIR"
"""Folder of the box that serves, for workers on other simulated boxes."""


@dataclass(frozen=True, slots=True)
class MemoryClaim:
    """Share of the box that one process uses."""

    pid: int
    started: int
    """The kernel's start time of the process, in ticks: a pid that was used again is another process."""
    memory: int
    """Size in bytes."""
    busy: float
    """Share of the GPU's time, 0..1."""
    profile: str
    power_w: float | None = None
    """Watts above the idle box; None: the usual power for that share."""


class ClaimFile:
    """Claim file of one process. Remove it at the end; a claim whose process is gone counts as removed."""

    def __init__(self, profile: str, folder: Path | None = None, pid: int | None = None) -> None:
        place = os.environ.get(FOLDER_VARIABLE)
        self._folder = folder or (Path(place) if place else None)
        self._pid = pid or os.getpid()
        self._started = process_start(self._pid) or 0
        self._profile = profile
        self._last: MemoryClaim | None = None

    def write(self, memory: int, busy: float = 0.0, power_w: float | None = None) -> None:
        """Write the current use: bytes, share 0..1, and watts."""
        claim = MemoryClaim(self._pid, self._started, memory, round(busy, 2), self._profile, power_w)
        if self._folder is None or claim == self._last:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        part = self._folder / f".{self._pid}.part"
        part.write_text(json.dumps(asdict(claim)))
        part.replace(self._folder / f"{self._pid}.json")
        self._last = claim

    def remove(self) -> None:
        """Remove the claim. Idempotent."""
        if self._folder is not None:
            (self._folder / f"{self._pid}.json").unlink(missing_ok=True)
        self._last = None


def read_claims(folder: Path) -> list[MemoryClaim]:
    """Return the claims of living processes. A stopped process holds its memory and leaves the GPU idle."""
    found = []
    for path in folder.glob("*.json"):
        with contextlib.suppress(OSError, ValueError, TypeError):
            claim = MemoryClaim(**json.loads(path.read_text()))
            state, began = _state(claim.pid)
            if began == claim.started:
                found.append(replace(claim, busy=0.0, power_w=0.0) if state == "T" else claim)
    return found


def process_start(pid: int) -> int | None:
    """Return the start of a process in the kernel's ticks since boot; None when it is gone or a zombie."""
    return _state(pid)[1]


def _state(pid: int) -> tuple[str, int | None]:
    """Return (the kernel's letter for the process's state, `process_start`)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return "", None
    return fields[0], None if fields[0] in "ZX" else int(fields[19])
