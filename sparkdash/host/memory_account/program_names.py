"""Names of programs that an interpreter runs: `python3 train.py` says more than `python3`.

Owns: what of a command line is shown: the script's or module's name, never its arguments, which may hold secrets.
It blocks: call it in a thread with a limit, as a reader of `cmdline` hangs with a process that hangs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePath

from sparkdash.host.memory_account.process_table import ProcessMemory
from sparkdash.host.processes.proc import PROC
from sparkdash.units import MIB

LARGE, MOST = 64 * MIB, 32
"""Processes whose command lines are read: of this size, and so many, the largest."""
LONGEST = 40
"""Characters of a script's name."""

_INTERPRETER = re.compile(r"(python|pypy|node|ruby|perl)[\d.]*")
_VALUED = frozenset({"-W", "-X", "--require", "-r", "--import", "-I"})
"""Options that take the next word."""


def scripts(processes: Iterable[ProcessMemory], proc: Path = PROC) -> dict[int, str]:
    """By pid, the better name of the largest processes that are an interpreter."""
    asked = [one for one in processes if one.anonymous >= LARGE and not one.stuck and _INTERPRETER.fullmatch(one.name)]
    found = {}
    for one in sorted(asked, key=lambda one: -one.anonymous)[:MOST]:
        try:
            words = (proc / str(one.pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
        except OSError:
            continue
        if name := script(words):
            found[one.pid] = f"{one.name} {name}"
    return found


def script(words: Sequence[str]) -> str | None:
    """What an interpreter's command line runs, without its folder; None when it names no file or module. Pure."""
    rest = iter(words[1:])
    for word in rest:
        if word == "-m":
            module = next(rest, "")
            return _short(f"-m {module}") if module else None
        if word in ("-c", "-e", "-"):
            return None
        if word in _VALUED:
            next(rest, None)
        elif not word.startswith("-"):
            return _short(PurePath(word).name) or None
    return None


def _short(name: str) -> str:
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"
