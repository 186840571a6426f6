"""Commands of podman or docker that a killed daemon left running.

Owns: telling such commands from all other processes. Must not know what happens to them.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from sparkdash.domain.container import CONTAINER_PREFIX, LABEL_OWNER
from sparkdash.host.processes import leftovers, proc


def find_abandoned_commands(program: str, owner: str) -> tuple[leftovers.Births, leftovers.Births]:
    """Find commands that start a container of ours, and commands that end one."""

    def of(words: list[str], *verbs: str) -> bool:
        return Path(words[0]).name == program and len(words) > 1 and words[1] in verbs

    label, ours = f"{LABEL_OWNER}={owner}", proc.family(os.getpid())
    runs = leftovers.processes_called(lambda words: of(words, "run") and label in words)
    ends = leftovers.processes_called(lambda words: of(words, "stop", "rm") and words[-1].startswith(CONTAINER_PREFIX))
    return _but(runs, ours), _but(ends, ours)


def _but(processes: leftovers.Births, ours: Collection[int]) -> leftovers.Births:
    return {pid: birth for pid, birth in processes.items() if pid not in ours}
