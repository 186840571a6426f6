"""Profile folders and config.toml, looked at in a thread: a mount that hangs must not block the loop."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from sparkdash.catalog import Catalog, ProfileProblem
from sparkdash.catalog.load import ProfileFileWatch, load_catalog
from sparkdash.host.thread import in_thread

ANSWER_S = 1.0
"""Longest wait for a look at the files. A look takes milliseconds, on a busy box tens of them."""
READ_S = 6.0
"""Longest wait for the files at the start and after a requested reload: hundreds of files take seconds."""


class FilesChange(NamedTuple):
    """Result of one look at the files."""

    changed: bool
    due_s: float | None
    """Seconds until files that were just edited may be read; None without such files."""


class ProfileFiles:
    """Profile folders and the settings file. One look runs at a time; what it finds late, the next call returns."""

    def __init__(self, folders: Callable[[], Sequence[Path]], settings_file: Path) -> None:
        self._folders = folders
        self._settings_file = settings_file
        self._watch: ProfileFileWatch | None = None
        self._look: asyncio.Task[tuple[float | None, Catalog | None]] | None = None
        self._catalog: Catalog | None = None

    async def look(self, wait_s: float = ANSWER_S, *, reread: bool = False) -> FilesChange:
        """Read files that were edited and are complete; with `reread` all files."""
        if self._look is None:
            self._look = asyncio.create_task(in_thread(partial(self._work, reread)), name="profile files")
        await asyncio.wait({self._look}, timeout=wait_s)
        if not self._look.done():
            return FilesChange(False, None)
        look, self._look = self._look, None
        due_s, read = look.result()
        self._catalog = read or self._catalog
        return FilesChange(read is not None, due_s or None)

    def _work(self, reread: bool) -> tuple[float | None, Catalog | None]:
        if self._watch is None:
            self._watch, reread = ProfileFileWatch(self._folders, [self._settings_file]), True
        due_s = self._watch.due()
        return due_s, load_catalog(self._folders()) if reread or due_s == 0.0 else None

    def catalog(self) -> Catalog:
        """Return all profiles as they were last read; none, with a problem, before the folders have answered."""
        if self._catalog is not None:
            return self._catalog
        hint = "Check whether the mount of one hangs."
        return Catalog(
            {}, (ProfileProblem("profiles", None, "", "the folders do not answer", hint, code="unreadable"),)
        )
