"""Processes of an engine, whatever their parent, and the end of those that outlived it.

Three marks, as each can be lost. The control group names the container, except for plain processes. The environment
holds SPARKDASH_ENGINE, unless the program wrote its title over it, as vLLM's workers do. The third mark is the list of
processes from while the engine ran, each with its birth, so that a reused pid is never mistaken. Nothing here reads the
environment of a process that hangs in the kernel: the reader would hang too.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import re
import signal
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from sparkdash.domain.container import ENV_MARK, ContainerInfo, ContainerSpec, ContainerState, Leftovers
from sparkdash.errors import HostError
from sparkdash.host.processes import proc
from sparkdash.host.processes.activity import parse_stat
from sparkdash.host.processes.proc import PROC
from sparkdash.host.thread import in_thread
from sparkdash.units import duration

_STATES = {
    "D": "waits in the kernel (state D), where no signal reaches it",
    "R": "runs in the kernel (state R) and does not come back from it",
}
HINT = (
    "`dmesg` shows the reason, mostly the GPU's driver. Its memory comes back once the kernel releases the process, or "
    "with a restart of the box."
)


def describe_stuck(pid: int, proc: Path = PROC) -> str:
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
    place = _told(proc / str(pid) / "wchan").strip()
    where = f", in {place}" if place not in ("", "0") else ""
    return f"{who} {_STATES.get(found.state, f'is in state {found.state}')}{where}"


def unkillable_error(name: str, pids: Collection[int], waited_s: float) -> HostError:
    """Error for an engine whose processes still exist so many seconds after SIGKILL."""
    told = [describe_stuck(pid) for pid in sorted(pids)]
    one = "process" if len(pids) == 1 else "processes"
    text = f"{name} does not end: {duration(waited_s)} after SIGKILL {one} {'; '.join(told)}."
    return HostError(text, code="unkillable", hint=HINT)


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


SCAN_S = 10.0
"""Time limit of a scan of all processes. It takes milliseconds, but much more on a box that is frozen."""
MOMENTS_S = (0.01, 0.04, 0.15)
"""Pauses before a process that waits in the kernel is read again, in the thread of the scan."""
KILLED_S = 5.0
"""Time for a process to end after SIGKILL before it counts as stuck."""

_ID = re.compile(r"[0-9a-f]{64}")
"""Full id of a container in podman and docker."""
_MARKED = f"\0{ENV_MARK}=".encode()

Births = dict[int, str]
"""Processes by pid, each with its `proc.birth`."""


def processes_of_engine(mark: str, container: str | None = None, root: Path = PROC) -> Births:
    """Living processes of the engine with this mark, or in the container of this id."""
    return {pid: mine for pid, (mine, found) in _marked(root).items() if found == mark or is_in(container, pid, root)}


def processes_in_containers(ids: Collection[str], root: Path = PROC) -> dict[str, set[int]]:
    """Living processes in the containers of these ids, by id."""
    living = proc.list_pids(root) if ids else []
    return {id_: {pid for pid in living if is_in(id_, pid, root)} for id_ in ids}


def processes_of_owner(owner: str, root: Path = PROC) -> dict[str, Births]:
    """Living processes of every engine of this owner, by the engine's mark."""
    engines: dict[str, Births] = {}
    for pid, (birth, mark) in _marked(root).items():
        if mark and mark.startswith(f"{owner}/"):
            engines.setdefault(mark, {})[pid] = birth
    return engines


def births(pids: Iterable[int], root: Path = PROC) -> Births:
    """Return the births of the living processes among `pids`: a reused pid has another birth."""
    found = proc.read_stats(pids, root)
    return {pid: f"{proc.boot(root)}:{it.ticks}" for pid, it in found.items() if not it.ended}


def processes_except(engines: Mapping[str, Births], held: Collection[str]) -> Births:
    """Processes of engines whose mark is not among `held`."""
    return {pid: birth for each, found in engines.items() if each not in held for pid, birth in found.items()}


def processes_called(is_it: Callable[[list[str]], bool], root: Path = PROC) -> Births:
    """Living processes whose command line matches; processes that hang in the kernel are skipped."""
    boot, found = proc.boot(root), Births()
    for it in _living(root):
        with suppress(OSError):
            if it.stuck:
                continue
            words = (root / str(it.pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
            if words and is_it(words):
                found[it.pid] = f"{boot}:{it.ticks}"
    return found


async def wait_for_all(processes: Mapping[int, str], limit_s: float) -> Births:
    """Wait for the end of all processes; return those that did not end in time."""
    ended = await asyncio.gather(*(wait_until_gone(pid, birth, limit_s) for pid, birth in processes.items()))
    return {pid: birth for (pid, birth), past in zip(processes.items(), ended, strict=True) if not past}


async def scan_for_engine(mark: str, container: str | None) -> Births | None:
    """Run `processes_of_engine` in a thread of its own, from the event loop; None if it took too long."""
    with suppress(TimeoutError):
        async with asyncio.timeout(SCAN_S):
            return await in_thread(lambda: processes_of_engine(mark, container))
    return None


def still_living(processes: Mapping[int, str]) -> Births:
    return {pid: birth for pid, birth in processes.items() if births([pid]).get(pid) == birth}


async def end_processes(*looks: Births | None) -> Leftovers:
    """Send SIGKILL to the found processes that still live, and wait for their end. None stands for a late scan."""
    left = {pid: birth for found in looks if found for pid, birth in found.items()}
    here = still_living(left)
    ended = await asyncio.gather(*(_end(pid, birth) for pid, birth in here.items()))
    ends = dict(zip(here, ended, strict=True))
    stuck = tuple(sorted(pid for pid, has_ended in ends.items() if not has_ended))
    return Leftovers(
        ended=tuple(sorted(pid for pid, has_ended in ends.items() if has_ended)),
        stuck=stuck,
        stuck_how=tuple(map(describe_stuck, stuck)),
        unseen=None in looks,
    )


async def wait_until_gone(pid: int, birth: str, limit_s: float | None) -> bool:
    """Wait for the end of a process, whatever its parent; False if `limit_s` passed first."""
    try:
        watch = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return births([pid]).get(pid) != birth or await _over(watch, limit_s)
    finally:
        os.close(watch)


async def _end(pid: int, birth: str) -> bool:
    """Kill through a pidfd, as the pid could be reused between scan and kill; return whether it ended."""
    try:
        held = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        if births([pid]).get(pid) != birth:
            return True
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(held, signal.SIGKILL)
        return await _over(held, KILLED_S)
    except PermissionError:  # root's container, a user's daemon
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
    """Birth of every living process but this one, and its engine's mark if it has a readable one."""
    boot = proc.boot(root)
    return {it.pid: (f"{boot}:{it.ticks}", None if it.stuck else _mark(it.pid, root)) for it in _living(root)}


def _living(root: Path) -> list[proc.ProcessStat]:
    """All living processes but this one; those that wait in the kernel, mostly for a moment, are read again."""
    found = proc.read_stats(sorted({*proc.list_pids(root)} - {os.getpid()}), root)
    for pause in MOMENTS_S:
        stuck = [it for it in found.values() if it.stuck]
        if not stuck:
            break
        time.sleep(pause)
        found |= {it.pid: now for it in stuck if (now := _same_process_now(it, root))}
    return [it for it in found.values() if not it.ended]


def _same_process_now(before: proc.ProcessStat, root: Path) -> proc.ProcessStat | None:
    """Read a process again; None if it has ended, or another process has its pid."""
    now = proc.stat(before.pid, root)
    return now if now is not None and now.ticks == before.ticks else None


def _mark(pid: int, root: Path) -> str | None:
    try:
        environment = b"\0" + (root / f"{pid}/environ").read_bytes()
    except OSError:  # gone, or another user's
        return None
    _, found, rest = environment.rpartition(_MARKED)
    return rest.partition(b"\0")[0].decode(errors="replace") if found else None


def is_in(container: str | None, pid: int, root: Path = PROC) -> bool:
    """Whether a process is in this container's control group, which podman's own monitor is not."""
    if container is None or not _ID.fullmatch(container):  # a short id would match other groups
        return False
    try:
        groups = (root / str(pid) / "cgroup").read_text(errors="replace")
    except OSError:
        return False
    own = {prefix + container + suffix for prefix in ("", "libpod-", "docker-") for suffix in ("", ".scope")}
    return any(not own.isdisjoint(line.rpartition(":")[2].split("/")) for line in groups.splitlines())


def resume(processes: Mapping[int, str]) -> None:
    """Continue all of these processes, as far as permitted: SIGTERM waits until a stopped process continues.

    SIGCONT goes to every process, as it also cancels a SIGSTOP that is still pending on a busy box. It goes through a
    pidfd, as the pid might be reused.
    """
    for pid, birth in processes.items():
        with suppress(OSError):
            held = os.pidfd_open(pid)
            try:
                if births([pid]).get(pid) == birth:
                    signal.pidfd_send_signal(held, signal.SIGCONT)
            finally:
                os.close(held)


LOOK_S = 1.0
"""Time limit of reading the control groups of all processes, which takes milliseconds."""


async def pids_of(container_id: str) -> set[int]:
    """Pids of the living processes in the container with that full id; empty if none is found within LOOK_S."""
    with suppress(TimeoutError):
        async with asyncio.timeout(LOOK_S):
            return await in_thread(lambda: processes_in_containers([container_id])[container_id])
    return set()


async def just_started(spec: ContainerSpec, container_id: str) -> ContainerInfo | None:
    """Describe a container that has just started, as the runtime would; None if its first process is not found."""
    members = await pids_of(container_id)
    first = [pid for pid in members if (found := proc.stat(pid)) is not None and found.parent not in members]
    if len(first) != 1:
        return None
    return ContainerInfo(
        id=container_id,
        name=spec.name,
        state=ContainerState.RUNNING,
        image=spec.image,
        labels=spec.labels,
        pid=first[0],
        started_at=time.time(),
        gpu=any("nvidia" in device for device in spec.devices),
    )


async def has_ended(container: ContainerInfo) -> bool:
    """Wait for the end of the container's first process; False at once if the kernel cannot tell."""
    pid = container.pid
    if pid is None:
        return False
    birth = births([pid]).get(pid)
    if birth is not None and not is_in(container.id, pid):
        return False
    return birth is None or await wait_until_gone(pid, birth, None)
