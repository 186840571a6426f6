"""Processes of engines on one box, whatever their parent, and the end of those that outlived their engine. Blocking.

Three marks, as each can be lost. The control group names the container, except for plain processes. The environment
holds SPARKDASH_ENGINE, unless the program wrote its title over it, as vLLM's workers do. The third mark is the list of
processes from while the engine ran, each with its birth, so that a reused pid is never mistaken. Nothing here reads the
environment of a process that hangs in the kernel: the reader would hang too.

Standard library alone, Python 3.10: this box runs this module, and `nodes.programs` ships it to other boxes, where
`run` carries out one order and prints its answer.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkdash.host.processes import proc
from sparkdash.host.processes.proc import PROC
from sparkdash.units import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

_STATES = {
    "D": "waits in the kernel (state D), where no signal reaches it",
    "R": "runs in the kernel (state R) and does not come back from it",
}
MOMENTS_S = (0.01, 0.04, 0.15)
"""Pauses before a process that waits in the kernel is read again."""
KILLED_S = 5.0
"""Time for a process to end after SIGKILL before it counts as stuck."""
LOOK_S = 0.02
"""Pause between two looks whether processes have ended."""

_ID = re.compile(r"[0-9a-f]{64}")
"""Full id of a container in podman and docker."""
_MARKED = b"\0SPARKDASH_ENGINE="

Births = dict[int, str]
"""Processes by pid, each with its `proc.birth`."""


def describe_stuck(pid: int, root: Path = PROC) -> str:
    """Describe it: "4712 (python3) waits in the kernel (state D), where no signal reaches it, in uvm_spin_loop"."""
    found = proc.stat(pid, root)
    if found is None:
        return f"{pid} has ended by now"
    who = f"{pid} ({one_line(found.name)})"
    try:
        os.kill(pid, 0)
    except PermissionError:
        return f"{who} belongs to {_owner(pid, root)}, whose processes sparkdash may not end"
    except ProcessLookupError:
        return f"{who} has ended by now"
    place = ""
    with suppress(OSError):
        place = (root / str(pid) / "wchan").read_text(errors="replace").strip()
    where = f", in {place}" if place not in ("", "0") else ""
    return f"{who} {_STATES.get(found.state, f'is in state {found.state}')}{where}"


def _owner(pid: int, root: Path) -> str:
    with suppress(OSError):
        uid = (root / str(pid)).stat().st_uid
        with suppress(KeyError):
            return pwd.getpwuid(uid).pw_name
        return f"user {uid}"
    return "another user"


def processes_of_engine(mark: str, container: str | None = None, root: Path = PROC) -> Births:
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


def still_living(processes: Mapping[int, str]) -> Births:
    return {pid: birth for pid, birth in processes.items() if births([pid]).get(pid) == birth}


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


def wait_for_all(processes: Mapping[int, str], limit_s: float) -> Births:
    """Wait for the end of all processes; return those that did not end in time."""
    due = time.monotonic() + limit_s
    while (left := still_living(processes)) and time.monotonic() < due:
        time.sleep(LOOK_S)
    return left


def end(processes: Mapping[int, str]) -> dict[str, Any]:
    """Send SIGKILL to those that still live; return the pids that `ended`, and the `stuck` ones, each described."""
    here = still_living(processes)
    allowed = {pid: birth for pid, birth in here.items() if _kill(pid, birth)}
    left = {**wait_for_all(allowed, KILLED_S), **{pid: here[pid] for pid in here.keys() - allowed.keys()}}
    stuck = [[pid, describe_stuck(pid)] for pid in sorted(left)]
    return {"ended": sorted(here.keys() - left.keys()), "stuck": stuck}


def _kill(pid: int, birth: str) -> bool:
    """Send SIGKILL through a pidfd, as the pid could be reused; False for a process that this user may not end."""
    try:
        held = os.pidfd_open(pid)
    except OSError:  # it has ended
        return True
    try:
        if births([pid]).get(pid) == birth:
            signal.pidfd_send_signal(held, signal.SIGKILL)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    finally:
        os.close(held)
    return True


def settle_commands(program: str, label: str, prefix: str, limit_s: float) -> dict[str, Any]:
    """Wait for commands of a killed daemon that start or end a container, and end those that still start one.

    Their helpers end with them: those of their session, which the container's monitor has left.

    `label`: of a container that is started; `prefix`: of the names of ours.
    """

    def of(words: list[str], *verbs: str) -> bool:
        return Path(words[0]).name == program and len(words) > 1 and words[1] in verbs

    ours = proc.family(os.getpid())
    runs = processes_called(lambda words: of(words, "run") and label in words)
    ends = processes_called(lambda words: of(words, "stop", "rm") and words[-1].startswith(prefix))
    left = wait_for_all({pid: birth for pid, birth in (runs | ends).items() if pid not in ours}, limit_s)
    starting = left.keys() & runs.keys()
    helpers = births(it.pid for it in _living(PROC) if it.session in starting)
    return end(helpers | {pid: left[pid] for pid in starting})


def make_folders(paths: Iterable[str]) -> tuple[str, str] | None:
    """Make missing folders; return the first that cannot be made, and why."""
    for path in paths:
        try:
            if not Path(path).exists():
                Path(path).mkdir(parents=True)
        except OSError as error:
            return path, error.strerror or str(error)
    return None


SECCOMP = ("/etc/containers/seccomp.json", "/usr/share/containers/seccomp.json")
"""Files with podman's default profile, the owner's first, as podman looks for them."""
IO_URING = ("io_uring_setup", "io_uring_enter", "io_uring_register")


def allow_io_uring(path: str, defaults: Iterable[str] = SECCOMP) -> tuple[str, str] | None:
    """Write podman's default profile with io_uring allowed to `path`; return the file that failed, and why."""
    default = next(filter(os.path.exists, defaults), SECCOMP[-1])
    try:
        profile = json.loads(Path(default).read_text())
        for rule in profile["syscalls"]:  # a call with two actions is an error
            rule["names"] = [name for name in rule["names"] if name not in IO_URING]
        profile["syscalls"].append({"names": IO_URING, "action": "SCMP_ACT_ALLOW"})
        fresh = Path(f"{path}.{os.getpid()}")
        fresh.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_text(json.dumps(profile))
        fresh.replace(path)
    except OSError as error:
        return str(error.filename), error.strerror or str(error)
    except (ValueError, KeyError, TypeError):
        return default, "it is no seccomp profile"
    return None


def carry_out(order: str, *words: str) -> Any:
    """Carry out one order: `of MARK [CONTAINER_ID]`, `all OWNER`, `end BIRTHS`, `living BIRTHS`, `folders PATH…`,
    `settle PROGRAM LABEL PREFIX SECONDS` or `io_uring PATH`; births are JSON.
    """
    if order == "of":
        return processes_of_engine(words[0], words[1] if len(words) > 1 else None)
    if order == "all":
        return processes_of_owner(words[0])
    if order == "settle":
        program, label, prefix, limit_s = words
        return settle_commands(program, label, prefix, float(limit_s))
    if order == "folders":
        return make_folders(words)
    if order == "io_uring":
        return allow_io_uring(words[0])
    given = {int(pid): birth for pid, birth in json.loads(words[0]).items()}
    return end(given) if order == "end" else still_living(given)


def run(*words: str) -> None:
    sys.stdout.write(json.dumps(carry_out(*words)) + "\n")
