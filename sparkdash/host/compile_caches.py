"""Compile caches of engines on disk: a folder for each image and model, as the start of an engine mounts it.

An engine's start sets its folder's time, so that unused ones can be told and removed. A folder in question is renamed
first: a rename is whole or not at all, and an engine that starts meanwhile makes a new one.
"""

import os
import shutil
import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_SECTOR = 512
_ASIDE, _GONE = ".aside", ".gone"
_STARTED = "an engine has just started with it"
STARTING_S = 300.0
"""Time from the note of a start until its container is certainly listed; `podman run` may take 180 s."""


@dataclass(frozen=True, slots=True)
class CompileCache:
    """Compiled files of one image for one model. `image_id` and `weights` are None for folders of older versions."""

    path: Path
    image: str
    image_id: str | None
    weights: str | None
    bytes: int
    started_at: float
    """Last start of an engine with it, Unix seconds."""
    in_use: bool = False
    """Whether a container that runs has it mounted."""


def list_caches(root: Path, mounted: Collection[str]) -> list[CompileCache]:
    """List the caches below `root`, the last started first. `mounted`: host paths that running containers have."""
    folders = [each for each in root.iterdir() if each.is_dir()] if root.is_dir() else []
    return sorted((_read(each, str(each) in mounted) for each in folders), key=lambda one: -one.started_at)


def _read(folder: Path, in_use: bool) -> CompileCache:
    image, image_id, weights = [*folder.name.split("@"), None, None][:3]
    return CompileCache(
        path=folder,
        image=image or folder.name,
        image_id=image_id,
        weights=weights,
        bytes=sum(_sizes(folder)),
        started_at=folder.stat().st_mtime,
        in_use=in_use,
    )


def _sizes(folder: Path) -> Iterable[int]:
    for where, _, files in os.walk(folder):
        for name in files:
            with suppress(OSError):
                yield (Path(where) / name).lstat().st_blocks * _SECTOR


def remove(cache: CompileCache) -> str | None:
    """Remove a cache that no engine uses; return why it stays, or None. An engine may have started with it since."""
    gone = cache.path.with_name(cache.path.name + _GONE)
    if time.time() - cache.started_at < STARTING_S:
        return _STARTED
    try:
        cache.path.rename(gone)
        if gone.stat().st_mtime > cache.started_at:
            gone.rename(cache.path)
            return _STARTED
        shutil.rmtree(gone)
    except OSError as error:
        return f"{error.strerror} ({error.filename})"
    return None


class KeptCache:
    """Compile cache that one start of an engine finds."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._aside = folder.with_name(folder.name + _ASIDE)
        self.was_empty = True

    def note_start(self) -> None:
        """Set the folder's time, if it is there; the runtime makes a missing one."""
        with suppress(OSError):
            os.utime(self.folder)
            self.was_empty = not any(self.folder.iterdir())

    def set_aside(self) -> bool:
        """Put the folder aside, so that the next start begins without it; False if that is not possible."""
        with suppress(OSError):
            self.folder.rename(self._aside)
            return True
        return False

    def put_back(self) -> None:
        """Undo `set_aside`, and drop what was compiled since."""
        shutil.rmtree(self.folder, ignore_errors=True)
        with suppress(OSError):
            self._aside.rename(self.folder)

    def drop_aside(self) -> None:
        shutil.rmtree(self._aside, ignore_errors=True)
