"""Commands of sparkdash on the dashboard's own box, as child processes, for what no daemon is asked to do.

Rule: nothing here starts an engine.
"""

import asyncio
import json
import os
import shlex
import shutil
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sparkdash.client.address import Address
from sparkdash.errors import AdmissionError, HostError, SparkdashError
from sparkdash.paths import PYTHON

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


_LINE_LIMIT = 4 * 1024 * 1024
"""Bytes of one line of output: the findings of a large folder are one line."""


class LocalCommands:
    """Runs `sparkdash …`; its children speak to the daemon at `address`."""

    def __init__(self, address: Address) -> None:
        self._address = address

    async def check(self, file: Path) -> dict[str, Any]:
        """Return the document of `profiles check`, with its findings. Raises SparkdashError: it failed itself."""
        told, code = await self._document("profiles", "check", "--json", "--", str(file))
        if "findings" in (error := told.get("error", {})):
            return dict(error)
        if code:
            raise _failure(error)
        return told

    async def dry_run(self, profile: str) -> dict[str, Any]:
        """Return the command that starts the profile's engine, as a document. Raises SparkdashError."""
        told, code = await self._document("use", "--dry-run", "--json", "--", profile)
        if code:
            raise _failure(told.get("error", {}))
        return told

    async def pull_weights(self, profile: str) -> AsyncGenerator[dict[str, Any], None]:
        """Yield the steps of a download into the owner's cache. Raises SparkdashError."""
        async with self._child("pull", "--weights-only", "--json", "--", profile) as child:
            told: dict[str, Any] = {}
            rest = ""
            while child.stdout is not None and (line := await child.stdout.readline()):
                rest += line.decode(errors="replace")
                try:
                    told, rest = json.loads(rest), ""
                except ValueError:
                    continue  # an error is a document of several lines
                if "error" not in told:
                    yield told
            if await child.wait():
                raise _failure(told.get("error", {}))

    async def _document(self, *argv: str) -> tuple[dict[str, Any], int]:
        async with self._child(*argv) as child:
            out, err = await child.communicate()
        try:
            return json.loads(out), child.returncode or 0
        except ValueError:
            said = err.decode(errors="replace").strip().splitlines()[-1:] or ["no reason told"]
            raise HostError(f"`sparkdash {argv[0]}` failed: {said[0]}", code="command_failed") from None

    @asynccontextmanager
    async def _child(self, *argv: str) -> AsyncGenerator[Process, None]:
        where = {} if self._address.uds else {"SPARKDASH_URL": self._address.url}
        command = [*PYTHON, "-m", "sparkdash", *argv]
        try:
            child = await asyncio.create_subprocess_exec(
                *command, stdin=asyncio.subprocess.DEVNULL, stdout=PIPE, stderr=PIPE, limit=_LINE_LIMIT,
                env=os.environ | where,
            )  # fmt: skip
        except OSError as error:
            raise HostError(f"sparkdash cannot be started: {error.strerror}.", code="command_failed") from error
        try:
            yield child
        finally:
            if child.returncode is None:
                child.terminate()
                await child.wait()


def _failure(error: dict[str, Any]) -> SparkdashError:
    return AdmissionError(
        error.get("message", "The command failed without a reason."),
        code=error.get("code", "command_failed"),
        hint=error.get("hint"),
    )
