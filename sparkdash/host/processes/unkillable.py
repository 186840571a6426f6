"""Processes that SIGKILL does not end, with the obstacle as far as the kernel shows it.

Owns: why SIGKILL does not end a process, read from /proc, and the wording. Must not know engines, nor who tried to end
them.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from sparkdash.errors import HostError
from sparkdash.host.processes.activity import CGROUP, is_frozen, parse_stat
from sparkdash.host.processes.proc import PROC
from sparkdash.units import duration

_STATES = {
    "D": "waits in the kernel (state D), where no signal reaches it",
    "R": "runs in the kernel (state R) and does not come back from it",
}
FROZEN = "is in a frozen control group"
THAW = "Thaw the group from where it was frozen; then the process ends."
HINT = (
    "`dmesg` shows the reason, mostly the GPU's driver. Its memory comes back once the kernel releases the process, or "
    "with a restart of the box."
)


def describe_stuck(pid: int, proc: Path = PROC, root: Path = CGROUP) -> str:
    """Describe it: "4712 (python3) waits in the kernel (state D), where no signal reaches it, in uvm_spin_loop"."""
    found = parse_stat(_told(proc / str(pid) / "stat").encode())
    if found is None:
        return f"{pid} has ended by now"
    who = f"{pid} ({found.name})"
    try:
        os.kill(pid, 0)
    except PermissionError:
        return f"{who} belongs to {_owner(pid, proc)}, whose processes sparkdash may not end"
    except ProcessLookupError:
        return f"{who} has ended by now"
    if is_frozen(_told(proc / str(pid) / "cgroup"), root):
        return f"{who} {FROZEN}"
    place = _told(proc / str(pid) / "wchan").strip()
    where = f", in {place}" if place not in ("", "0") else ""
    return f"{who} {_STATES.get(found.state, f'is in state {found.state}')}{where}"


def unkillable_error(name: str, pids: Collection[int], waited_s: float) -> HostError:
    """Error for an engine whose processes still exist so many seconds after SIGKILL."""
    told = [describe_stuck(pid) for pid in sorted(pids)]
    one = "process" if len(pids) == 1 else "processes"
    text = f"{name} does not end: {duration(waited_s)} after SIGKILL {one} {'; '.join(told)}."
    hint = THAW if all(each.endswith(FROZEN) for each in told) else HINT
    return HostError(text, code="unkillable", hint=hint)


def _owner(pid: int, proc: Path) -> str:
    with suppress(OSError):
        uid = (proc / str(pid)).stat().st_uid
        with suppress(KeyError):
            return pwd.getpwuid(uid).pw_name
        return f"user {uid}"
    return "another user"


def _told(file: Path) -> str:
    try:
        return file.read_bytes().decode("utf-8", "replace")
    except OSError:
        return ""
