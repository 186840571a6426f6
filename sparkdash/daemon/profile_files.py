"""Profile folders and config.toml, read in threads.

A folder on a mount that hangs blocks neither the loop nor another folder.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from sparkdash.catalog import Catalog, ProfileProblem
from sparkdash.catalog.load import FolderRead, ProfileFileWatch, combine_folders, read_folder
from sparkdash.host.thread import in_thread

T = TypeVar("T")
ANSWER_S = 1.0
"""Longest wait for a look at a folder. A look takes milliseconds, on a busy box tens of them."""
READ_S = 6.0
"""Longest wait for a folder at the start and after a requested reload: hundreds of files take seconds."""
SILENT_S = 5.0
"""Seconds without an answer after which a folder is reported."""


class FilesChange(NamedTuple):
    """Result of one look at the files."""

    changed: bool
    """Whether something new was read, or a folder fell silent or answers again."""
    due_s: float | None
    """Seconds until files that were just edited may be read; None without such files."""


class _Question(Generic[T]):
    """Blocking call that runs once at a time; callers that come meanwhile share its answer."""

    def __init__(self, on_late_answer: Callable[[], object]) -> None:
        self._on_late_answer = on_late_answer
        self._task: asyncio.Task[T] | None = None
        self._since = 0.0
        self._is_late = False

    @property
    def silent(self) -> bool:
        return self._task is not None and not self._task.done() and time.monotonic() - self._since >= SILENT_S

    async def ask(self, work: Callable[[], T], wait_s: float) -> T | None:
        """Return the answer, or None if it takes longer than `wait_s`; a late answer is reported to the callback."""
        if self._task is None:
            self._task = asyncio.create_task(in_thread(work))
            self._since, self._is_late = time.monotonic(), False
        left_s = self._since + wait_s - time.monotonic()
        if left_s > 0 and not self._task.done():
            await asyncio.wait((self._task,), timeout=left_s)
        if self._task.done():
            task, self._task = self._task, None
            return task.result()
        if not self._is_late:
            self._is_late = True
            self._task.add_done_callback(lambda _: self._on_late_answer())
        return None


class _WatchedPath:
    """Profile folder or settings file with its last known content."""

    def __init__(
        self,
        watch: Callable[[], ProfileFileWatch],
        read: Callable[[], FolderRead],
        on_late_answer: Callable[[], object],
    ):
        self.contents: FolderRead | None = None
        self.was_silent = False
        self.question: _Question[tuple[float | None, FolderRead | None]] = _Question(on_late_answer)
        self._make_watch = watch
        self._read = read
        self._watch: ProfileFileWatch | None = None

    async def look(self, wait_s: float, *, reread: bool) -> FilesChange:
        """Find changes since the last look."""
        found = await self.question.ask(partial(self._work, reread), wait_s)
        silent = self.question.silent
        turned, self.was_silent = silent is not self.was_silent, silent
        if found is None:
            return FilesChange(turned, None)
        due_s, contents = found
        self.contents = contents or self.contents
        return FilesChange(turned or contents is not None, due_s or None)

    def _work(self, reread: bool) -> tuple[float | None, FolderRead | None]:
        if self._watch is None:
            self._watch, reread = self._make_watch(), True
        due_s = self._watch.due()
        return due_s, self._read() if reread or due_s == 0.0 else None


class ProfileFiles:
    """Profile folders and the settings file, looked at in threads. Callers must not overlap."""

    def __init__(
        self, folders: Callable[[], Sequence[Path]], settings_file: Path, on_late_answer: Callable[[], object]
    ) -> None:
        self._list = folders
        self._on_late_answer = on_late_answer
        self._listing: _Question[Sequence[Path]] = _Question(on_late_answer)
        self._folders: Sequence[Path] = ()
        self._paths: dict[Path, _WatchedPath] = {}
        self._settings = _WatchedPath(lambda: ProfileFileWatch(list, [settings_file]), FolderRead, on_late_answer)

    async def look(self, wait_s: float = ANSWER_S, *, reread: bool = False) -> FilesChange:
        """Look at all folders at once and read files that were edited and are complete; with `reread` all files."""
        folders = await self._listing.ask(self._list, wait_s)
        if folders is not None:
            self._folders = folders
            self._paths = {folder: self._paths.get(folder) or self._of_folder(folder) for folder in folders}
        places = (*self._paths.values(), self._settings)
        found = await asyncio.gather(*(place.look(wait_s, reread=reread) for place in places))
        return FilesChange(
            any(each.changed for each in found), max((each.due_s for each in found if each.due_s), default=None)
        )

    def catalog(self) -> Catalog:
        """Catalog of all profiles, each folder as it last answered."""
        return combine_folders([self._read_of(folder) for folder in self._folders])

    @property
    def silent(self) -> frozenset[Path]:
        return frozenset(folder for folder, place in self._paths.items() if place.was_silent)

    def _read_of(self, folder: Path) -> FolderRead:
        place = self._paths[folder]
        read = place.contents or FolderRead()
        if not place.was_silent and place.contents is not None:
            return read
        message = "the folder does not answer; its profiles stay as they were last read"
        problem = ProfileProblem(str(folder), None, "", message, "Check whether its mount hangs.", code="unreadable")
        return FolderRead(read.files, (*read.problems, problem))

    def _of_folder(self, folder: Path) -> _WatchedPath:
        return _WatchedPath(
            lambda: ProfileFileWatch(lambda: [folder]), partial(read_folder, folder), self._on_late_answer
        )
