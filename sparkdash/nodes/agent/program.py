"""Programs that are sent to a node: the remote modules as one text, and the command that reads it from stdin.

Owns: which modules belong to a program, and the few lines that load them there. Must not know what they do.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

FIGURES = "figures"
GUARD = "guard"
_NAME = "sparkdash.nodes.agent.remote"
_MODULES = {
    FIGURES: ("kernel", "engine_processes", "gpu", "guard_files", "figures"),
    GUARD: ("kernel", "engine_processes", "guard_files", "guard_rules", "guard"),
}
"""Remote modules of each program, each after those that it imports; the last one has `run`."""

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
    """Return a program that calls `run(argument)` of its last module; it needs Python 3.8 and nothing else."""
    here, parts = Path(__file__).parent / "remote", _NAME.split(".")
    lines = [_LOADER]
    lines += [f"_load({'.'.join(parts[: depth + 1])!r}, '')" for depth in range(len(parts))]
    lines += [f"_last = _load({f'{_NAME}.{each}'!r}, {(here / f'{each}.py').read_text()!r})" for each in _MODULES[name]]
    return "\n".join([*lines, f"_last.run({argument!r})", ""]).encode()


def program_argv(name: str, argument: str) -> list[str]:
    """Return the command that reads `program_text` from stdin and runs it; what follows in stdin is the program's."""
    reader = _READER.format(size=len(program_text(name, argument)), title=f"sparkdash-{name}")
    return ["python3", "-I", "-S", "-u", "-c", reader]
