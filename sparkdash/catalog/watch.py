"""Watch: has a profile file been edited, and what stands in while it is broken.

Owns: one stat per file, and the last good version of a family. Must not know when to look, nor who uses the catalog.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from sparkdash.catalog.catalog import Catalog
from sparkdash.catalog.load import SUFFIXES
from sparkdash.domain.profile import Profile

Stamp = tuple[int, int, int]
"""Time of change (ns), size, inode: an editor that replaces a file within the clock's grain still changes one."""


class Watch:
    """Remembers how the files looked. `folders` is asked each time: a folder may appear. `beside` are single files."""

    def __init__(self, folders: Callable[[], Sequence[Path]], beside: Sequence[Path] = ()) -> None:
        self._folders = folders
        self._beside = tuple(beside)
        self._seen = self._look()

    def changed(self) -> bool:
        """Is anything different from the last time this was asked? Blocks for a stat per file."""
        before, self._seen = self._seen, self._look()
        return self._seen != before

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


def keeping(last: Catalog, read: Catalog) -> Catalog:
    """What was read, and for each file that has become bad the profiles that it gave before. The problems stay told.

    A profile is not kept when its name or an alias has been taken by a good file since.
    """
    bad = {problem.file for problem in read.problems}
    lost = [profile for profile in last.profiles.values() if _file(profile) in bad]
    families = {profile.family for profile in lost}
    # A weaker folder's family of the same name comes to light when the stronger file breaks: it does not take over.
    good = {name: profile for name, profile in read.profiles.items() if profile.family not in families}
    taken = set(Catalog(good).names())
    kept = {profile.name: profile for profile in lost if taken.isdisjoint((profile.name, *profile.serves))}
    return Catalog(good | kept, read.problems)


def _file(profile: Profile) -> str:
    return profile.source.rpartition(":")[0]
