"""Processes that belong to an engine, whoever their parent is by now.

Owns: telling them from all others, and ending those that outlived their engine. Must not know why one ended.

Three marks, as each can be lost. The control group names the container (not with plain processes). The environment
carries SPARKDASH_ENGINE (not of a program that wrote its title over it, as vLLM's workers do). And the processes that
were seen while the engine ran, each with its birth, so that a pid that was given to a stranger is never taken for it.
Nothing here reads the environment of a process that hangs in the kernel: the reader would hang with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

from sparkdash.domain.container import ENV_MARK, Leftovers
from sparkdash.host.processes import proc, unkillable
from sparkdash.host.processes.proc import PROC
from sparkdash.host.thread import in_thread

SCAN_S = 10.0
"""Limit of one look at all processes. It takes milliseconds; on a box that stands still, or where the kernel holds a reader, much more."""
MOMENTS_S = (0.01, 0.04, 0.15)
"""Pauses after which a process that waits in the kernel is looked at again, in the thread that looks."""
KILLED_S = 5.0
"""How long a process may take to go after SIGKILL before it counts as stuck."""

_ID = re.compile(r"[0-9a-f]{64}")
"""What podman and docker call a container by."""
_MARKED = f"\0{ENV_MARK}=".encode()

Births = dict[int, str]
"""Processes by pid, each with proc.birth's word for it."""


def processes_of_engine(mark: str, container: str | None = None, root: Path = PROC) -> Births:
    """The living processes of the engine with this mark, or in the container of this id."""
    return {pid: mine for pid, (mine, found) in _marked(root).items() if found == mark or is_in(container, pid, root)}


def processes_in_containers(ids: Collection[str], root: Path = PROC) -> dict[str, set[int]]:
    """The living processes in the containers of these ids, by id."""
    living = [int(entry.name) for entry in root.iterdir() if entry.name.isdigit()] if ids else []
    return {id_: {pid for pid in living if is_in(id_, pid, root)} for id_ in ids}


def processes_of_owner(owner: str, root: Path = PROC) -> dict[str, Births]:
    """The living processes of every engine of this owner, by the engine's mark."""
    engines: dict[str, Births] = {}
    for pid, (birth, mark) in _marked(root).items():
        if mark and mark.startswith(f"{owner}/"):
            engines.setdefault(mark, {})[pid] = birth
    return engines


def births(pids: Iterable[int], root: Path = PROC) -> Births:
    """Those of them that live, so that each can be told later from a stranger with its pid."""
    found = {pid: proc.stat(pid, root) for pid in pids}
    return {pid: f"{proc.boot(root)}:{it.ticks}" for pid, it in found.items() if it and not it.ended}


def processes_except(engines: Mapping[str, Births], held: Collection[str]) -> Births:
    """The processes of those engines whose mark is not among `held`."""
    return {pid: birth for each, found in engines.items() if each not in held for pid, birth in found.items()}


def processes_called(is_it: Callable[[list[str]], bool], root: Path = PROC) -> Births:
    """The living processes whose command line is such a one. One that hangs in the kernel is not asked."""
    boot, found = proc.boot(root), Births()
    for it in _living(root):
        with contextlib.suppress(OSError):
            if it.stuck:
                continue
            words = (root / str(it.pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
            if words and is_it(words):
                found[it.pid] = f"{boot}:{it.ticks}"
    return found


async def wait_for_all(processes: Mapping[int, str], limit_s: float) -> Births:
    """Wait for the end of all; those that did not end in time."""
    ended = await asyncio.gather(*(wait_until_gone(pid, birth, limit_s) for pid, birth in processes.items()))
    return {pid: birth for (pid, birth), past in zip(processes.items(), ended, strict=True) if not past}


async def scan_for_engine(mark: str, container: str | None) -> Births | None:
    """`belonging`, from the event loop; None when the look took too long. It has a thread of its own: one that hangs keeps nobody."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(SCAN_S):
            return await in_thread(lambda: processes_of_engine(mark, container))
    return None


def still_living(processes: Mapping[int, str]) -> Births:
    """Those that still live."""
    return {pid: birth for pid, birth in processes.items() if births([pid]).get(pid) == birth}


async def end_processes(*looks: Births | None) -> Leftovers:
    """SIGKILL what still lives of those that were found, and wait for its end. None: a look that was late."""
    left = {pid: birth for found in looks if found for pid, birth in found.items()}
    here = still_living(left)
    ended = await asyncio.gather(*(_end(pid, birth) for pid, birth in here.items()))
    ends = dict(zip(here, ended, strict=True))
    stuck = tuple(sorted(pid for pid, has_ended in ends.items() if not has_ended))
    return Leftovers(
        ended=tuple(sorted(pid for pid, has_ended in ends.items() if has_ended)),
        stuck=stuck,
        stuck_how=tuple(map(unkillable.describe_stuck, stuck)),
        unseen=None in looks,
    )


async def wait_until_gone(pid: int, birth: str, limit_s: float | None) -> bool:
    """Wait until that process has ended, whoever its parent is; False when `limit_s` passed first."""
    try:
        watch = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return births([pid]).get(pid) != birth or await _over(watch, limit_s)
    finally:
        os.close(watch)


async def _end(pid: int, birth: str) -> bool:
    """Through a descriptor, which stays with this very process: between a look and a kill its pid could change hands."""
    try:
        held = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        if births([pid]).get(pid) != birth:
            return True
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(held, signal.SIGKILL)
        return await _over(held, KILLED_S)
    except PermissionError:  # a container of root's, a daemon of a user's
        return False
    finally:
        os.close(held)


async def _over(held: int, limit_s: float | None) -> bool:
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(held, over.set)
    try:
        await asyncio.wait_for(over.wait(), limit_s)
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(held)
    return True


def _marked(root: Path) -> dict[int, tuple[str, str | None]]:
    """Every living process but this one: its birth, and its engine's mark if it carries one that we may read."""
    boot = proc.boot(root)
    return {it.pid: (f"{boot}:{it.ticks}", None if it.stuck else _mark(it.pid, root)) for it in _living(root)}


def _living(root: Path) -> list[proc.ProcessStat]:
    """Every living process but this one. Those that wait in the kernel mostly do so for a moment: they are looked at again."""
    pids = [int(entry.name) for entry in root.iterdir() if entry.name.isdigit()]
    found = {pid: it for pid in pids if pid != os.getpid() and (it := proc.stat(pid, root))}
    for pause in MOMENTS_S:
        stuck = [pid for pid, it in found.items() if it.stuck]
        if not stuck:
            break
        time.sleep(pause)
        found |= {pid: now for pid in stuck if (now := proc.stat(pid, root)) and now.ticks == found[pid].ticks}
    return [it for it in found.values() if not it.ended]


def _mark(pid: int, root: Path) -> str | None:
    try:
        environment = b"\0" + (root / f"{pid}/environ").read_bytes()
    except OSError:  # gone, or another user's
        return None
    _, found, rest = environment.rpartition(_MARKED)
    return rest.partition(b"\0")[0].decode(errors="replace") if found else None


def is_in(container: str | None, pid: int, root: Path = PROC) -> bool:
    """Whether a process is in this container's control group; podman's own monitor beside it does not count."""
    if container is None or not _ID.fullmatch(container):  # a short one would be found in anybody's
        return False
    try:
        groups = (root / str(pid) / "cgroup").read_text(errors="replace")
    except OSError:
        return False
    own = {prefix + container + suffix for prefix in ("", "libpod-", "docker-") for suffix in ("", ".scope")}
    return any(not own.isdisjoint(line.rpartition(":")[2].split("/")) for line in groups.splitlines())
