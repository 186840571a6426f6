"""Folders of YAML files become a Catalog, and are watched; a broken file keeps its last good version meanwhile."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from sparkdash.catalog.catalog import Catalog, ProfileProblem, nearest
from sparkdash.catalog.checks import document_problems, profile_problems
from sparkdash.catalog.document import Document, read_document
from sparkdash.catalog.schema import MOST_PROBLEMS, Section, sections, validate_section
from sparkdash.domain.images import ImageOrigin, image_origin
from sparkdash.domain.profile import Profile
from sparkdash.units import natural


def share_builds(
    found: Sequence[tuple[Section, Profile]], profiles: Mapping[str, Profile]
) -> tuple[dict[str, Profile], list[ProfileProblem]]:
    """Give each profile the build of its image, and tell what contradicts or lacks."""
    owners: dict[str, Profile] = {}
    for profile in sorted(profiles.values(), key=_is_without_source):
        if profile.image and profile.build:
            owners.setdefault(profile.image, profile)
    shared = {name: _with_build(profile, owners) for name, profile in profiles.items()}
    return shared, [problem for section, profile in found for problem in _problems(section, profile, owners)]


def _is_without_source(profile: Profile) -> bool:
    return profile.build is not None and profile.build.unavailable is not None


def _with_build(profile: Profile, owners: Mapping[str, Profile]) -> Profile:
    owner = owners.get(profile.image or "")
    return profile.replace(build=owner.build, built_by=owner.name) if owner else profile


def _problems(section: Section, profile: Profile, owners: Mapping[str, Profile]) -> Iterator[ProfileProblem]:
    if profile.build is None:
        return
    owner = owners.get(profile.image or "")
    if owner is not None and owner.build != profile.build and not _is_without_source(profile):
        text = f"is another than that of {owner.name} ({owner.source}), for the same image"
        yield section.problem(("build",), text, "Write one of them, or name this image differently.")


SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True, slots=True)
class _File:
    """Valid file: its family's profiles, each with its section."""

    document: Document
    profiles: tuple[tuple[Section, Profile], ...]

    @property
    def family(self) -> str:
        return self.profiles[0][1].name


def load_catalog(folders: Sequence[Path]) -> Catalog:
    """Load the folders' profiles; a later folder overrides families of an earlier one. A bad file is left out whole."""
    problems: list[ProfileProblem] = []
    families: dict[str, _File] = {}
    for folder in folders:
        good = _unique(list(_files(folder, problems)), problems)
        families.update({file.family: file for file in good})
    kept = _distinct(families, problems)
    kept.sort(key=lambda file: natural(file.family))
    found = [pair for file in kept for pair in file.profiles]
    profiles = {profile.name: profile for _, profile in found}
    resolved = {name: _resolve_nearest(profile, profiles) for name, profile in profiles.items()}
    problems += _lost_nearest(kept, resolved)
    resolved, unbuilt = share_builds(found, resolved)
    problems += unbuilt
    resolved = {name: _with_nearest_to_be_had(profile, resolved) for name, profile in resolved.items()}
    located = {profile.name: section.problem for section, profile in found}
    return Catalog(resolved, tuple(sorted(problems, key=_by_place)), located)


def _by_place(problem: ProfileProblem) -> tuple[Any, int]:
    return natural(problem.file), problem.line or 0


def _files(folder: Path, problems: list[ProfileProblem]) -> Iterator[_File]:
    try:
        found = [p for p in folder.iterdir() if p.suffix in SUFFIXES and not p.name.startswith(".")]
    except OSError as error:
        gone = isinstance(error, FileNotFoundError)
        message = "there is no such folder" if gone else f"it cannot be read: {error.strerror}"
        if isinstance(error, NotADirectoryError):
            message = "it is no folder, and no regular file"
        hint = "Correct `profiles` in config.toml." if gone else None
        problems.append(ProfileProblem(str(folder), None, "", message, hint, code="unreadable"))
        return
    for path in sorted(found, key=lambda p: natural(p.name)):
        read = _read(path)
        if isinstance(read, _File):
            yield read
        else:
            problems.extend(read)


def _read(path: Path) -> _File | list[ProfileProblem]:
    document = read_document(path)
    if isinstance(document, ProfileProblem):
        return [document]
    _expand_home(document.data)
    problems = list(document_problems(document))
    profiles: list[tuple[Section, Profile]] = []
    for section in sections(document):
        outcome = validate_section(section)
        if isinstance(outcome, Profile):
            profiles.append((section, outcome))
            problems += islice(profile_problems(section, outcome), MOST_PROBLEMS)
        else:
            problems += outcome
        if len(problems) > MOST_PROBLEMS:
            break
    # What the base does wrong, every variant inherits: it is told once.
    return list(dict.fromkeys(problems)) or _File(document, tuple(profiles))


def _unique(files: list[_File], problems: list[ProfileProblem]) -> list[_File]:
    kept: dict[str, _File] = {}
    for file in files:
        if first := kept.get(file.family):
            problems.append(_taken(file.profiles[0][0], ("profile",), file.family, first.profiles[0][1]))
        else:
            kept[file.family] = file
    return list(kept.values())


def _distinct(families: dict[str, _File], problems: list[ProfileProblem]) -> list[_File]:
    owners = {profile.name: profile for file in families.values() for _, profile in file.profiles}
    kept = []
    for file in families.values():
        mine: dict[str, Profile] = {}
        clashes = list(_clashes(file, owners, mine))
        problems += clashes
        if not clashes:
            owners.update(mine)
            kept.append(file)
    return kept


def _clashes(file: _File, owners: dict[str, Profile], mine: dict[str, Profile]) -> Iterator[ProfileProblem]:
    for section, profile in file.profiles:
        for index, alias in enumerate(profile.serves):
            owner = owners.get(alias) or mine.get(alias)
            if owner:
                yield _taken(section, ("serves", index), alias, owner)
            else:
                mine[alias] = profile


def _taken(section: Section, path: tuple[str | int, ...], name: str, owner: Profile) -> ProfileProblem:
    return section.problem(
        path, f"{name!r} is already taken by {owner.name} ({owner.source})", "Choose another name.", code="taken-name"
    )


def _resolve_nearest(profile: Profile, profiles: dict[str, Profile]) -> Profile:
    """Expand `nearest: eagle3` to a sister variant; a full name stays as it is."""
    sister = f"{profile.family}/{profile.nearest}"
    return profile.replace(nearest=sister) if sister in profiles else profile


def _with_nearest_to_be_had(profile: Profile, profiles: dict[str, Profile]) -> Profile:
    """Lead `nearest` on to a profile that can run and has an image to pull or to build; else, the box may have it."""
    can_run = [one for one in _nearest_in_turn(profile, profiles) if one.cannot_run is None]
    to_be_had = [one for one in can_run if image_origin(one.image or "", one.build) is not ImageOrigin.NONE]
    found = to_be_had or [one for one in can_run if one.build is None]
    return profile.replace(nearest=found[0].name if found else None)


def _nearest_in_turn(profile: Profile, profiles: dict[str, Profile]) -> list[Profile]:
    chain, there = [profile], profiles.get(profile.nearest or "")
    while there is not None and there not in chain:
        chain.append(there)
        there = profiles.get(there.nearest or "")
    return chain[1:]


def _lost_nearest(files: list[_File], profiles: dict[str, Profile]) -> Iterator[ProfileProblem]:
    for section, profile in (pair for file in files for pair in file.profiles):
        wanted = profiles[profile.name].nearest
        if wanted is not None and wanted not in profiles:
            close = nearest(wanted, [*profiles, *(p.variant or "" for p in profiles.values())])
            hint = f"Did you mean {close[0]}?" if close else None
            yield section.problem(("nearest",), f"there is no profile {wanted!r}", hint, code="unknown-name")


def _expand_home(data: dict[str, Any]) -> None:
    """Expand `~` in the paths of models and adapters and in mount sources, in the base and every variant."""
    for body in [data, *_mappings(data.get("variants"))]:
        for ref in _mappings(body.get("models")):
            _expand(ref, "path")
        for mount in _mappings(body.get("mounts")):
            _expand(mount, "source")
        for served in _mappings(body.get("serves")):
            for name in served:
                _expand(served, name)


def _mappings(value: Any) -> list[dict[str, Any]]:
    """Return the mappings among the values of a mapping or the items of a list."""
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [item for item in items if isinstance(item, dict)]


def _expand(entry: dict[str, Any], key: str) -> None:
    if isinstance(entry.get(key), str) and entry[key].startswith("~"):
        entry[key] = str(Path(entry[key]).expanduser())


Clock = Callable[[], float]
Stamp = tuple[int, int, int]
"""Time of change (ns), size, inode: an editor that replaces a file within the clock's grain still changes one."""

QUIET_S = 0.5
"""Files that changed more recently are not read yet: an editor that writes in place cuts them off for a moment."""


class ProfileFileWatch:
    """Remembers the state of the files in `folders`, which may appear later, and of those `beside`."""

    def __init__(
        self, folders: Callable[[], Sequence[Path]], beside: Sequence[Path] = (), *, clock: Clock = time.monotonic
    ) -> None:
        self._folders = folders
        self._beside = tuple(beside)
        self._clock = clock
        self._read = self._seen = self._look()
        self._since = clock()
        """Time when the present state was first seen."""

    def due(self) -> float | None:
        """Return the seconds until changed files may be read (0: now, which marks them as read); None without any.

        Blocks for a stat of each file.
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
    """Combine the new catalog with the last good profiles of bad files, unless a good file took their names."""
    bad = {problem.file for problem in read.problems}
    lost = [profile for profile in last.profiles.values() if not bad.isdisjoint(_places(profile))]
    families = {profile.family for profile in lost}
    # A weaker folder's family of the same name comes to light when the stronger file breaks: it does not take over.
    good = {name: profile for name, profile in read.profiles.items() if profile.family not in families}
    taken = set(Catalog(good).names())
    kept = {profile.name: profile for profile in lost if taken.isdisjoint((profile.name, *profile.serves))}
    return Catalog(good | kept, read.problems)


def _places(profile: Profile) -> tuple[str, str]:
    file = profile.source.rpartition(":")[0]
    return file, str(Path(file).parent)
