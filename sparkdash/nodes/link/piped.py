"""Python scripts that are piped to a box and answer with one JSON object.

Owns: the command line, and what becomes of an answer that is none. Must not know what a script does.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from sparkdash.errors import HostError
from sparkdash.nodes.link.box import NOT_FOUND, Box

PYTHON = "python3"
LINES = 3
"""Lines of a failed script's complaint that are shown."""


async def ask(box: Box, script: ModuleType, request: Mapping[str, object], *, deadline_s: float) -> dict[str, Any]:
    """Run `script` on the box with `request` as its one argument; return the object that it prints.

    Raises:
        HostError: the box is silent or has no python3, or the script failed; `script_failed` with its last lines.
    """
    if box.commands is None:
        raise box.silent or HostError(f"{box.name} cannot be reached.", code="node_unreachable")
    source = inspect.getsource(script).encode()
    done = await box.commands.run((PYTHON, "-", json.dumps(request)), deadline_s=deadline_s, stdin=source)
    if done.code == NOT_FOUND:
        raise HostError(
            f"{box.shown} has no {PYTHON}.", code="python_missing", hint=f"On {box.shown}: sudo apt install python3"
        )
    try:
        answer = json.loads(done.out)
    except (ValueError, RecursionError):
        answer = None
    if done.code or not isinstance(answer, dict):
        said = " ".join(done.err.strip().splitlines()[-LINES:]) or "it printed no answer"
        raise HostError(
            f"A script failed on {box.shown} with exit code {done.code}: {said}.",
            code="script_failed",
            hint=f"`sparkdash nodes check {box.name}` examines the box.",
        )
    return answer
