"""Stacks of an engine's processes: Python's by py-spy if installed, the kernel's for root.

Owns: finding and running py-spy, and the reason when that fails. py-spy is no dependency, and sparkdash never installs
it. `--nonblocking` pauses no process.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from sparkdash.host import command
from sparkdash.host.evidence.processes import ProcessSeen
from sparkdash.host.processes.proc import PROC
from sparkdash.host.thread import in_thread
from sparkdash.printable import one_line, printable
from sparkdash.redaction import masked

PY_SPY = "py-spy"
DUMP_S = 3.0
"""Time limit of one dump; 60 threads take 60 ms."""
KERNEL_S = 2.0
"""Time limit of reading the kernel's stacks of all processes."""
DUMP_LIMIT = 128 * 1024
"""Limit of one dump in bytes; 130 threads have 60 kB."""
DUMPED = 16
"""Limit of dumped processes."""
AT_ONCE = 4
THREADS = 1024
"""Limit of threads of one process."""

ABSENT = (
    "py-spy is not installed for the daemon's user, so Python's stacks are missing. "
    "`uv tool install py-spy` or `pipx install py-spy` provides it; sparkdash looks on PATH and in ~/.local/bin."
)
DENIED = (
    "The kernel does not let this user look into the process. An engine of root's podman needs root: "
    "`sudo py-spy dump --nonblocking --pid {pid}`. For an engine of this user set "
    "`sudo sysctl kernel.yama.ptrace_scope=0`."
)
_DENIED = re.compile(r"permission denied|operation not permitted|\bEPERM\b|\bEACCES\b", re.IGNORECASE)
_VERSION = re.compile(r"^Python v", re.MULTILINE)
_PYTHON = re.compile(r"python|^VLLM::|^sglang::", re.IGNORECASE)


async def python_stacks(processes: Sequence[ProcessSeen]) -> str:
    """Dump the Python processes; give the reason in place of a missing dump."""
    chosen = [one for one in processes if _PYTHON.search(one.program or one.name)][:DUMPED]
    if not chosen:
        return "No Python process was seen.\n"
    program = found_py_spy()
    if program is None:
        return f"{ABSENT}\n"
    free = asyncio.Semaphore(AT_ONCE)

    async def dumped(one: ProcessSeen) -> str:
        async with free:
            return f"== pid {one.pid} {one_line(one.name)}\n{await _dump(program, one.pid)}\n"

    return "\n".join(await asyncio.gather(*map(dumped, chosen)))


def found_py_spy() -> str | None:
    """Path of py-spy, on PATH or among this user's tools; None without one."""
    places = os.pathsep.join([os.environ.get("PATH", os.defpath), str(Path("~/.local/bin").expanduser())])
    return shutil.which(PY_SPY, path=places)


async def _dump(program: str, pid: int) -> str:
    argv = [program, "dump", "--nonblocking", "--pid", str(pid)]
    try:
        text = await command.command_output(argv, deadline_s=DUMP_S, limit=DUMP_LIMIT)
    except TimeoutError:
        return f"py-spy gave no answer within {DUMP_S:g} s."
    except OSError as error:
        return f"py-spy cannot be run: {error.strerror or error}."
    said = printable(masked(_without_command(text))).rstrip() or "py-spy said nothing."
    return f"{said}\n{DENIED.format(pid=pid)}" if _DENIED.search(said) and "Thread " not in said else said


def _without_command(text: str) -> str:
    """Drop the head, which repeats the command line with all its secrets."""
    version = _VERSION.search(text)
    return text if version is None else text[version.start() :]


async def kernel_stacks(processes: Sequence[ProcessSeen]) -> str:
    """Report the kernel stack of each thread, equal ones together; only root may read them."""
    try:
        async with asyncio.timeout(KERNEL_S):
            return await in_thread(lambda: _kernel_stacks([one.pid for one in processes]))
    except TimeoutError:
        return f"The kernel's stacks were not read within {KERNEL_S:g} s.\n"


def _kernel_stacks(pids: Iterable[int], proc: Path = PROC) -> str:
    found: list[str] = []
    for pid in pids:
        try:
            entries = sorted((proc / str(pid) / "task").iterdir(), key=lambda entry: int(entry.name))[:THREADS]
            stacks = Counter((entry / "stack").read_text().strip() for entry in entries)
        except PermissionError:
            return "Only root may read the kernel's stacks.\n"
        except OSError:  # it ended
            continue
        grouped = "\n".join(f"{count} x\n{stack}" for stack, count in stacks.most_common())
        found.append(f"== pid {pid}\n{grouped}\n")
    return "\n".join(found) or "No process was there.\n"
