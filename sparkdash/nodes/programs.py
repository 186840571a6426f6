"""Programs that are sent to a box: modules of this project as one text, which its Python reads from standard input.

Nothing is installed or written there. The modules need Python 3.10 and its standard library alone; pynvml is one file
and goes with them.
"""

import json
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sparkdash.errors import HostError
from sparkdash.host.command import CommandResult, run_command

PYTHON = "python3"
NOT_FOUND = 127
"""Exit code of a shell for a program that does not exist."""

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

Modules = tuple[str, ...]
"""Modules of a program, each after those that it imports; the last one has `run(*words)`."""
RunProgram = Callable[..., Awaitable[CommandResult]]
"""Runs a program on one box to its end, as `run_here` and `NodeConnection.run` do."""


@cache
def program_text(*modules: str) -> bytes:
    """Return a program that calls `run` of its last module with the words of its command line."""
    above = {".".join(each.split(".")[:depth]) for each in modules for depth in range(1, each.count(".") + 1)}
    lines = [_LOADER, *(f"_load({each!r}, '')" for each in sorted(above))]
    lines += [f"_last = _load({each!r}, {_source(each)!r})" for each in modules]
    return "\n".join([*lines, "_last.run(*sys.argv[1:])", ""]).encode()


def _source(module: str) -> str:
    found = find_spec(module)
    assert found is not None  # noqa: S101 - a module of this project
    return Path(str(found.origin)).read_text()


def stream_argv(modules: Modules, *words: str) -> list[str]:
    """Return the command that reads `program_text` from stdin and runs it; what follows in stdin is the program's."""
    title = f"sparkdash-{modules[-1].rpartition('.')[2].removeprefix('remote_')}"
    return [PYTHON, "-I", "-S", "-u", "-c", _READER.format(size=len(program_text(*modules)), title=title), *words]


async def ask(
    name: str,
    run: RunProgram,
    modules: Modules,
    *words: str,
    deadline_s: float,
    failed: Callable[[str], HostError],
    python: str = PYTHON,
) -> Any:
    """Run a program on the box of this name; return the JSON of the last line that it prints.

    Raises:
        HostError: node_python_missing; `failed` with the program's last words; those of `run`.
    """
    argv = [python, "-I", "-S", "-", *words]
    done = await run(argv, deadline_s=deadline_s, stdin=program_text(*modules))
    if done.code == NOT_FOUND:
        raise HostError(
            f"{name} has no python3, by which sparkdash reads what is there.",
            code="node_python_missing",
            hint="Install it there: `sudo apt-get install python3`.",
        )
    said = (done.err.strip().splitlines() or ["it said nothing"])[-1]
    try:
        return json.loads(done.out.splitlines()[-1])
    except (ValueError, IndexError, RecursionError):
        raise failed(said) from None


async def run_here(argv: Sequence[str], *, deadline_s: float, stdin: bytes | None = None) -> CommandResult:
    """Run a program of this box; code 127: there is none. Raises HostError: it did not end within `deadline_s`."""
    try:
        return await run_command(argv, deadline_s=deadline_s, stdin=stdin)
    except TimeoutError:
        raise HostError(
            f"`{argv[0]}` did not end within {deadline_s:g} s on this box.", code="command_timeout"
        ) from None
    except OSError as error:
        return CommandResult(NOT_FOUND, "", f"{argv[0]}: {error.strerror or error}")
