"""Detection of edited profile files, and the last good version while a file is broken.

Owns: one stat per file, and the last good version of a family. Must not know when to look, nor who uses the catalog.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from sparkdash.catalog.catalog import Catalog
from sparkdash.catalog.load import SUFFIXES
from sparkdash.domain.profile import Profile

Stamp = tuple[int, int, int]
"""Time of change (ns), size, inode: an editor that replaces a file within the clock's grain still changes one."""


QUIET_S = 0.5
"""Files that changed more recently are not read yet. An editor that writes in place leaves a file empty, cut off or
absent for a moment, and such a file may still be valid.
"""


class ProfileFileWatch:
    """Remembers the state of the files. `folders` is evaluated each time, as a folder may appear. `beside` are single
    files.
    """

    def __init__(
        self,
        folders: Callable[[], Sequence[Path]],
        beside: Sequence[Path] = (),
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folders = folders
        self._beside = tuple(beside)
        self._clock = clock
        self._read = self._seen = self._look()
        self._since = clock()
        """Time when the present state was first seen."""

    def due(self) -> float | None:
        """Return the seconds until the changed files may be read, 0 for now, or None without a change.

        0 marks the present state as read. Blocks for a stat per file.
        """
        now, found = self._clock(), self._look()
        if found != self._seen:
            self._seen, self._since = found, now
        if found == self._read:
            return None
        if (left := self._since + QUIET_S - now) > 0:
            return left
        self._read = found
        return 0.0

    def _look(self) -> dict[Path, Stamp]:
        files = (*(path for folder in self._folders() for path in _listed(folder)), *self._beside)
        return {path: stamp for path in files if (stamp := _stamp(path)) is not None}


def _listed(folder: Path) -> list[Path]:
    try:
        return [path for path in folder.iterdir() if path.suffix in SUFFIXES]
    except OSError:
        return []


def _stamp(path: Path) -> Stamp | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def keep_last_good(last: Catalog, read: Catalog) -> Catalog:
    """Combine the new catalog with the last good profiles of files or folders that have become bad.

    The new problems stay. A profile is not kept when a good file has taken its name or an alias since.
    """
    bad = {problem.file for problem in read.problems}
    lost = [profile for profile in last.profiles.values() if not bad.isdisjoint(_places(profile))]
    families = {profile.family for profile in lost}
    # A weaker folder's family of the same name comes to light when the stronger file breaks: it does not take over.
    good = {name: profile for name, profile in read.profiles.items() if profile.family not in families}
    taken = set(Catalog(good).names())
    kept = {profile.name: profile for profile in lost if taken.isdisjoint((profile.name, *profile.serves))}
    return Catalog(good | kept, read.problems)


def _places(profile: Profile) -> tuple[str, str]:
    """Return the profile's file and folder."""
    file = profile.source.rpartition(":")[0]
    return file, str(Path(file).parent)
