"""Watch: has a profile file been edited, is it whole by now, and what stands in while it is broken.

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
"""Files that changed more recently are not read yet: an editor that writes in place leaves one empty or cut off for a moment, or
takes it away, and much of what is cut off, or empty, is valid all the same."""


class ProfileFileWatch:
    """Remembers how the files looked. `folders` is asked each time: a folder may appear. `beside` are single files."""

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
        """When they were first seen to look as they do."""

    def due(self) -> float | None:
        """Seconds until what has changed may be read; 0: now, and it is taken to be read then. None: nothing has changed.

        Blocks for a stat per file.
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
    """What was read, and for each file or folder that has become bad the profiles that it gave before. The problems stay told.

    A profile is not kept when its name or an alias has been taken by a good file since.
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
    """Its file, and the folder of that."""
    file = profile.source.rpartition(":")[0]
    return file, str(Path(file).parent)
