"""Processes of engines on the box that this file runs on. It is piped to `python3 -` on a node; answers are JSON.

Standard library of Python 3.10 alone; imports nothing of sparkdash.

Arguments: `of MARK CONTAINER_ID` (ID may be empty), `all OWNER`, `end JSON_OF_BIRTHS`, `settle PROGRAM OWNER SECONDS`,
`folders PATH…`. A birth is the boot's id and the start time in ticks, so that a reused pid is never mistaken.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

PROC = Path("/proc")
MARK = b"\0SPARKDASH_ENGINE="
KILLED_S = 5.0
Births = dict[int, str]
"""Processes by pid, each with its birth."""


def read_bytes(path: Path) -> bytes:
    """Return the file's bytes; b"" if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def births() -> Births:
    """Return all living processes that a reader of /proc does not hang on: birth by pid, without this process."""
    boot = read_bytes(PROC / "sys/kernel/random/boot_id").decode().strip()
    found = {}
    for each in PROC.glob("[0-9]*"):
        words = read_bytes(each / "stat").decode(errors="replace").rpartition(")")[2].split()
        if len(words) > 19 and words[0] not in "ZXD" and int(each.name) != os.getpid():
            found[int(each.name)] = f"{boot}:{words[19]}"
    return found


def mark_of(pid: int) -> str:
    """Return the engine's mark of a process; "" without one."""
    _, found, rest = (b"\0" + read_bytes(PROC / str(pid) / "environ")).rpartition(MARK)
    return rest.partition(b"\0")[0].decode(errors="replace") if found else ""


def is_in(container: str, pid: int) -> bool:
    """Whether a process is in the control group of the container with this full id, without podman's monitor."""
    if not re.fullmatch(r"[0-9a-f]{64}", container):
        return False
    own = {before + container + after for before in ("", "libpod-", "docker-") for after in ("", ".scope")}
    lines = read_bytes(PROC / str(pid) / "cgroup").decode(errors="replace").splitlines()
    return any(not own.isdisjoint(line.rpartition(":")[2].split("/")) for line in lines)


def of_engine(mark: str, container: str) -> Births:
    """Return the processes of one engine or container."""
    return {pid: birth for pid, birth in births().items() if mark_of(pid) == mark or is_in(container, pid)}


def of_owner(owner: str) -> dict[str, Births]:
    """Return the processes of all engines of an owner, by the engine's mark."""
    engines: dict[str, Births] = {}
    for pid, birth in births().items():
        mark = mark_of(pid)
        if mark.startswith(owner + "/"):
            engines.setdefault(mark, {})[pid] = birth
    return engines


def wait_for(processes: Births, seconds: float) -> Births:
    """Wait for the end of processes; return those that still live after that time."""
    due = time.monotonic() + seconds
    while True:
        now = births()
        left = {pid: birth for pid, birth in processes.items() if now.get(pid) == birth}
        if not left or time.monotonic() >= due:
            return left
        time.sleep(0.05)


def end(processes: Births) -> dict[str, list[int]]:
    """Kill processes that still have their births; return the pids that ended, and those that did not."""
    now = births()
    here = {pid: birth for pid, birth in processes.items() if now.get(pid) == birth}
    for pid in here:
        with suppress(OSError):
            held = os.pidfd_open(pid)
            if births().get(pid) == here[pid]:
                signal.pidfd_send_signal(held, signal.SIGKILL)
    left = wait_for(here, KILLED_S)
    return {"ended": sorted(set(here) - set(left)), "stuck": sorted(left)}


def commands(program: str, owner: str) -> tuple[Births, Births]:
    """Return podman's commands that start a container of the owner, and those that end one of ours."""
    runs: Births = {}
    ends: Births = {}
    for pid, birth in births().items():
        words = read_bytes(PROC / str(pid) / "cmdline").decode(errors="replace").split("\0")[:-1]
        if len(words) < 2 or Path(words[0]).name != program:
            continue
        if words[1] == "run" and f"sparkdash.owner={owner}" in words:
            runs[pid] = birth
        elif words[1] in ("stop", "rm") and words[-1].startswith("sparkdash-"):
            ends[pid] = birth
    return runs, ends


def settle(program: str, owner: str, seconds: float) -> dict[str, list[int]]:
    """Wait for commands of a killed daemon, then end those that still start a container."""
    runs, ends = commands(program, owner)
    left = wait_for({**runs, **ends}, seconds)
    return end({pid: birth for pid, birth in left.items() if pid in runs})


def make_folders(paths: list[str]) -> list[str | None] | None:
    """Make missing folders; return the first that cannot be made and why, or null."""
    for path in paths:
        try:
            Path(path).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            return [path, error.strerror]
    return None


def answer(verb: str, words: list[str]) -> Any:
    """Carry out one order of the command line."""
    if verb == "of":
        return of_engine(words[0], words[1])
    if verb == "all":
        return of_owner(words[0])
    if verb == "end":
        return end({int(pid): birth for pid, birth in json.loads(words[0]).items()})
    if verb == "settle":
        return settle(words[0], words[1], float(words[2]))
    return make_folders(words)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(answer(sys.argv[1], sys.argv[2:])) + "\n")
