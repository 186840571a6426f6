"""Processes of our engines on a node, by container.

Runs on nodes, with the standard library of Python 3.10 alone: nothing is installed there.

Three marks, as each can be lost. A process of an engine has SPARKDASH_ENGINE in its environment, unless it wrote its
title over it. The control group names the container's id, and the file config.json that the container's monitor
(conmon) was started with has the mark of that container. A process that hangs in the kernel is not asked for its
environment: the reader would hang too.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from sparkdash.host.kernel_figures import PROC, read_text
from sparkdash.host.processes.proc import stat

FULL_S = 30.0
"""Interval of a look at all processes; between them only young and new ones are examined."""
YOUNG_S = 20.0
"""Age up to which a process is examined again, as it may still become an engine's by exec."""
_ID = re.compile(r"/(?:libpod-|docker-)?([0-9a-f]{64})(?:\.scope)?(?=/|$)", re.MULTILINE)
"""Full id of a container in a control group's path; the group of podman's own monitor does not match."""
_CONFIG_LIMIT = 4 * 1024 * 1024

if TYPE_CHECKING:
    Processes = dict[int, int]
    """Processes by pid, each with its start in clock ticks since boot, so that a reused pid is not mistaken."""


class EngineProcesses:
    """Engines of one owner that run on this node. Only tests give `proc`."""

    def __init__(self, owner: str, proc: str = PROC) -> None:
        self._mark = ("\0SPARKDASH_ENGINE=" + owner + "/").encode()
        self._owner = owner
        self._proc = proc
        self._ticks = os.sysconf("SC_CLK_TCK")
        self._seen: dict[int, tuple[int, bool]] = {}
        """Start of every process, and whether its examination was the last one."""
        self._of: dict[int, str] = {}
        self._containers: dict[str, str] = {}
        self._full_at = float("-inf")

    def scan(self, now: float) -> dict[str, Processes]:
        """Return the processes of each container; `now` is seconds since boot."""
        full = now - self._full_at >= FULL_S
        if full:
            self._full_at = now
            self._seen.clear()
        pids = {int(name) for name in os.listdir(self._proc) if name.isdigit()}
        for gone in self._seen.keys() - pids:
            del self._seen[gone]
        for pid in sorted(pids):  # the monitor comes before its container
            if not self._seen.get(pid, (0, False))[1]:
                self._examine(pid, now)
        return self._engines(pids)

    def _engines(self, pids: set[int]) -> dict[str, Processes]:
        found: dict[str, Processes] = {}
        for pid, container in list(self._of.items()):
            start = start_of(pid, self._proc) if pid in pids else None
            if start is None or start != self._seen.get(pid, (start, True))[0]:
                del self._of[pid]
            else:
                found.setdefault(container, {})[pid] = start
        return found

    def _examine(self, pid: int, now: float) -> None:
        found = stat(pid, Path(self._proc))
        if found is None or found.ended or pid == os.getpid():
            self._seen.pop(pid, None)
            return
        self._seen[pid] = found.ticks, not found.stuck and now - found.ticks / self._ticks >= YOUNG_S
        if found.name == "conmon":
            self._learn(pid)
        elif container := self._container_of(pid, found.stuck):
            self._of[pid] = container

    def _container_of(self, pid: int, stuck: bool) -> str | None:
        """Name of the container by the mark in the environment, else by the control group; None for other processes."""
        groups = _ID.findall(read_text(f"{self._proc}/{pid}/cgroup") or "")
        mark = None if stuck else self._marked(pid)
        if not mark:
            return next((self._containers[each] for each in groups if each in self._containers), None)
        if groups:
            self._containers[groups[0]] = mark
        return mark

    def _marked(self, pid: int) -> str | None:
        try:
            with open(f"{self._proc}/{pid}/environ", "rb") as file:
                _, found, rest = (b"\0" + file.read()).rpartition(self._mark)
        except OSError:
            return None
        return rest.partition(b"\0")[0].decode("utf-8", "replace")[:128] if found else None

    def _learn(self, pid: int) -> None:
        """Learn the name of the container that this monitor belongs to, if it is our engine's."""
        words = (read_text(f"{self._proc}/{pid}/cmdline") or "").split("\0")
        found = {words[at]: words[at + 1] for at in range(len(words) - 1) if words[at] in ("-c", "-b", "-n")}
        if not {"-c", "-b", "-n"} <= found.keys() or found["-c"] in self._containers:
            return
        with suppress(OSError), open(found["-b"] + "/config.json", "rb") as file:
            mark = f'"SPARKDASH_ENGINE={self._owner}/{found["-n"]}"'
            if mark.encode() in file.read(_CONFIG_LIMIT):
                self._containers[found["-c"]] = found["-n"]


def is_held(pid: int, proc: str = PROC, groups: str = "/sys/fs/cgroup") -> bool:
    """Whether the process is stopped by a signal, or its control group frozen, as by `podman pause`."""
    found = stat(pid, Path(proc))
    if found is None or found.state in "Tt":
        return found is not None
    lines = (read_text(f"{proc}/{pid}/cgroup") or "").splitlines()
    return any(_is_frozen(line, groups) for line in lines)


def _is_frozen(line: str, groups: str) -> bool:
    """Whether the group of a line of /proc/PID/cgroup is frozen; version 2 names no controllers."""
    _, kinds, path = line.split(":", 2)
    if kinds == "freezer":
        return (read_text(f"{groups}/freezer{path}/freezer.state") or "").strip() == "FROZEN"
    return not kinds and "frozen 1" in (read_text(f"{groups}{path}/cgroup.events") or "")


def start_of(pid: int, root: str = PROC) -> int | None:
    """Start of a living process in clock ticks since boot; None if it has ended."""
    found = stat(pid, Path(root))
    return None if found is None or found.ended else found.ticks
