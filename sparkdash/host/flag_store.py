"""Store of the flags that programs list, kept between daemons."""

from __future__ import annotations

import hashlib
import json
import shutil
from contextlib import suppress
from pathlib import Path, PurePosixPath

from pydantic import ValidationError

from sparkdash.domain.base import Frozen
from sparkdash.domain.container import ContainerSpec
from sparkdash.domain.profile import Profile
from sparkdash.engines import containers
from sparkdash.engines.flag_table import KnownFlags
from sparkdash.engines.registry import adapter_of
from sparkdash.paths import read_small_file


class StoredFlags(Frozen):
    """Flags of one program. `identity` is its `identity()` at that time."""

    image: str | None
    argv: tuple[str, ...]
    identity: str
    definitions: tuple[tuple[str, ...], ...]


class FlagStore:
    """Folder of stored flags. A file that cannot be read or written counts as missing."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def recall(self, spec: ContainerSpec, program: str | None) -> KnownFlags | None:
        """Return the stored flags of the program of `spec`; None without any, or if its identity is not `program`."""
        kept = self._kept(spec)
        return KnownFlags(kept.definitions) if kept and kept.identity == program else None

    def of(self, profile: Profile, *, containerised: bool) -> KnownFlags | None:
        """Return the flags of this profile's program, as `last`; None if it has no program that lists flags."""
        asked = adapter_of(profile).help(profile)
        return self.last(containers.help_container(profile, asked.argv, containerised=containerised)) if asked else None

    def last(self, spec: ContainerSpec) -> KnownFlags | None:
        """Return the last stored flags of the program of `spec`; the image's name may mean another image by now."""
        kept = self._kept(spec)
        if kept is None or (spec.image is None and kept.identity != identity(spec, None)):
            return None
        return KnownFlags(kept.definitions)

    def keep(self, spec: ContainerSpec, program: str, known: KnownFlags) -> None:
        kept = StoredFlags(image=spec.image, argv=spec.argv, identity=program, definitions=known.definitions)
        file = self._file(spec)
        part = file.with_suffix(".part")
        with suppress(OSError):  # a full disk: the program is asked again
            self._folder.mkdir(parents=True, exist_ok=True)
            part.write_text(kept.model_dump_json())
            part.replace(file)

    def _kept(self, spec: ContainerSpec) -> StoredFlags | None:
        try:
            return StoredFlags.model_validate_json(read_small_file(self._file(spec)))
        except (OSError, ValidationError):
            return None

    def _file(self, spec: ContainerSpec) -> Path:
        key = json.dumps([spec.image, *spec.argv])
        return self._folder / f"{hashlib.sha256(key.encode()).hexdigest()[:24]}.json"


def identity(spec: ContainerSpec, image_id: str | None) -> str | None:
    """Compute a value that changes with the program of `spec`; None if it is unknown. Reads the disk.

    The value is the image's id, or comes from the file of a program on this box (no image, or out of a mount).
    """
    file = _file_of(spec)
    if file is None:
        return image_id or None
    try:
        seen = file.stat()
    except OSError:
        return None
    return f"{image_id or ''} {file.resolve()} {seen.st_size} {seen.st_mtime_ns}"


def _file_of(spec: ContainerSpec) -> Path | None:
    """Find the program's file on this box; None if the program comes from the image."""
    if spec.image is None:
        found = shutil.which(spec.argv[0], path=spec.env.get("PATH"))
        return Path(found or spec.argv[0])
    inside = PurePosixPath(spec.argv[0])
    covering = [mount for mount in spec.mounts if inside.is_relative_to(mount.target)]
    if not covering:
        return None
    mount = max(covering, key=lambda one: len(one.target))
    return Path(mount.source) / inside.relative_to(mount.target)
