"""The owner's editor for a file, in the dashboard's terminal.

Owns: which program it is. Must not know: what is edited.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

from textual.app import App, SuspendNotSupported

from sparkdash.errors import HostError

COMMON = ("nano", "vim", "vi")
"""Editors that are tried without $VISUAL and $EDITOR."""
TAKE_A_LINE = frozenset({"nano", "vim", "vi", "nvim", "emacs", "micro", "kak", "joe"})
"""Editors that open a file at the line `+N`."""


def editor_command(file: Path, line: int) -> list[str]:
    """Return the command that edits `file`. Raises HostError: there is no editor."""
    told = os.environ.get("VISUAL") or os.environ.get("EDITOR") or next(filter(shutil.which, COMMON), "")
    argv = shlex.split(told)
    if not argv:
        raise HostError("No editor is known.", code="no_editor", hint="Set EDITOR, for example to nano.")
    at = [f"+{line}"] if Path(argv[0]).name in TAKE_A_LINE else []
    return [*argv, *at, str(file)]


def edit_in_terminal(app: App[None], file: Path, line: int) -> None:
    """Hand the terminal to the editor until it ends. Raises HostError: it cannot be started."""
    argv = editor_command(file, line)
    try:
        with app.suspend():
            subprocess.run(argv, check=False)
    except SuspendNotSupported as error:
        raise HostError("No editor can run in this terminal.", code="no_editor") from error
    except OSError as error:
        raise HostError(f"{argv[0]} cannot be started: {error.strerror}.", code="no_editor") from error
