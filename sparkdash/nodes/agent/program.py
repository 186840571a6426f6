"""Programs that are sent to a node: modules of this project as one text, and the command that reads it from stdin."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path

FIGURES = "figures"
GUARD = "guard"
_REMOTE = "sparkdash.nodes.agent.remote"
_MODULES = {
    FIGURES: tuple(f"{_REMOTE}.{name}" for name in ("kernel", "engine_processes", "gpu", "guard_files", "figures")),
    GUARD: (
        "sparkdash.host.guard_rules",
        *(f"{_REMOTE}.{name}" for name in ("kernel", "engine_processes", "guard_files", "guard")),
    ),
}
"""Modules of each program, each after those that it imports; the last one has `run`. They use the standard library of
Python 3.10 alone, and each other.
"""

_LOADER = """\
import sys, types
def _load(name, text):
    module = types.ModuleType(name)
    module.__path__ = []
    sys.modules[name] = module
    exec(compile(text, name, "exec"), module.__dict__)
    above, _, last = name.rpartition(".")
    if above:
        setattr(sys.modules[above], last, module)
    return module
"""
_READER = """\
# {title}
import os
text = b""
while len(text) < {size}:
    part = os.read(0, {size} - len(text))
    if not part:
        raise SystemExit("the program did not arrive")
    text += part
exec(compile(text, "{title}", "exec"))
"""


@cache
def program_text(name: str, argument: str) -> bytes:
    """Return a program that calls `run(argument)` of its last module; it needs Python 3.10 and nothing else."""
    modules = _MODULES[name]
    above = {".".join(each.split(".")[:depth]) for each in modules for depth in range(1, each.count(".") + 1)}
    lines = [_LOADER, *(f"_load({each!r}, '')" for each in sorted(above))]
    lines += [f"_last = _load({each!r}, {_source(each)!r})" for each in modules]
    return "\n".join([*lines, f"_last.run({argument!r})", ""]).encode()


def _source(module: str) -> str:
    found = find_spec(module)
    assert found is not None  # noqa: S101 - a module of this project
    return Path(str(found.origin)).read_text()


def program_argv(name: str, argument: str) -> list[str]:
    """Return the command that reads `program_text` from stdin and runs it; what follows in stdin is the program's."""
    reader = _READER.format(size=len(program_text(name, argument)), title=f"sparkdash-{name}")
    return ["python3", "-I", "-S", "-u", "-c", reader]
