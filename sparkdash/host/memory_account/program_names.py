"""Names of programs run by an interpreter: `python3 train.py` in place of `python3`.

Owns: which part of a command line is shown: the script's or module's name, never arguments, which may hold secrets.
Blocks: call it in a thread with a time limit, as a reader of `cmdline` hangs with a hanging process.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePath

from sparkdash.host.memory_account.process_table import ProcessMemory
from sparkdash.host.processes.proc import PROC
from sparkdash.units import MIB

LARGE, MOST = 64 * MIB, 32
"""Least size and largest number of the processes whose command lines are read."""
LONGEST = 40
"""Limit of a script's name in characters."""

_INTERPRETER = re.compile(r"(python|pypy|node|ruby|perl)[\d.]*")
_VALUED = {
    "python": {"-W", "-X"},
    "pypy": {"-W", "-X"},
    "node": {"-r", "--require", "--import"},
    "ruby": {"-r", "-I"},
    "perl": {"-I"},
}
"""Options with a value in the next word, by interpreter."""


def script_names(processes: Iterable[ProcessMemory], proc: Path = PROC) -> dict[int, str]:
    """Better names of the largest interpreter processes, by pid."""
    asked = [one for one in processes if one.anonymous >= LARGE and not one.stuck and _INTERPRETER.fullmatch(one.name)]
    found = {}
    for one in sorted(asked, key=lambda one: -one.anonymous)[:MOST]:
        try:
            words = (proc / str(one.pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
        except OSError:
            continue
        if name := script_name(words, one.name):
            found[one.pid] = f"{one.name} {name}"
    return found


def script_name(words: Sequence[str], interpreter: str) -> str | None:
    """File or module that an interpreter's command line runs, without its folder; None without one."""
    valued = _VALUED[found[1]] if (found := _INTERPRETER.fullmatch(interpreter)) else set()
    rest = iter(words[1:])
    for word in rest:
        if word == "-m":
            module = next(rest, "")
            return _short(f"-m {module}") if module else None
        if word in ("-c", "-e", "-"):
            return None
        if word in valued:
            next(rest, None)
        elif not word.startswith("-"):
            return _short(PurePath(word).name) or None
    return None


def _short(name: str) -> str:
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"
