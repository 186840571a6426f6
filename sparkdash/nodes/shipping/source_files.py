"""Files of a model on this box, as they must lie on another one.

Owns: which files and links make up a model: a snapshot of the hub's cache with its blobs, or a folder. Must not know
how they are sent. Reads folders, never weights.

A link that stays inside its folder is sent as a link; another one as the file that it leads to, so that the copy is
complete without the rest of this box.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from sparkdash.catalog.checkpoint.weights import locate_checkpoint
from sparkdash.domain.profile import ModelRef
from sparkdash.errors import HostError, ProfileError
from sparkdash.host.hub_download import wanted_files
from sparkdash.host.local_weights import repository_folder, split_model_files, split_repository
from sparkdash.nodes.shipping.receiver import MOST_NAMES
from sparkdash.nodes.shipping.remote_files import PART, refuse_name, refuse_target

_SHA256 = re.compile(r"[0-9a-f]{64}")
_DEEPEST = 40
"""Folders within folders; links may lead in circles."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """File to send: its name below the root, and where it lies here."""

    name: str
    source: Path
    size: int
    mtime_ns: int
    mode: int
    sha256: str | None = None
    """Checksum, where the file's own name is one."""
    last: bool = False
    """Whether it is sent after all others, as it makes them visible."""


@dataclass(frozen=True, slots=True)
class SourceTree:
    """Model on this box: files and links below one root."""

    model: str
    """Path or repository, as in the profile."""
    root: str
    """Root on the other node, which may begin with `~`."""
    files: tuple[SourceFile, ...]
    links: tuple[tuple[str, str], ...] = ()
    """Names with their targets."""

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)


def model_tree(ref: ModelRef, hf_home: Path, hf_home_there: str) -> SourceTree:
    """List the files of a model.

    Raises:
        HostError: weights_missing, weights_unreadable, or weights_name for a name that cannot be sent.
    """
    try:
        tree = _in_cache(ref, hf_home, hf_home_there) if ref.hf else _at(Path(ref.ref).expanduser(), ref.ref)
    except ProfileError as error:
        raise HostError(error.message, code="weights_missing", hint=error.hint) from None
    except OSError as error:
        raise HostError(
            f"{ref.ref} cannot be read: {error.filename}: {error.strerror}.", code="weights_unreadable"
        ) from None
    _check_names(tree)
    return tree


def _in_cache(ref: ModelRef, hf_home: Path, hf_home_there: str) -> SourceTree:
    repo, quant = split_repository(ref.ref)
    snapshot = locate_checkpoint(ModelRef(hf=repo, revision=ref.revision), hf_home)
    folder = repository_folder(hf_home, repo)
    found = dict(_walk(snapshot, ""))
    files: dict[str, SourceFile] = {}
    links = []
    blobs = (folder / "blobs").resolve()
    for name in wanted_files(found, quant):
        path = found[name]
        below = f"snapshots/{snapshot.name}/{name}"
        if path.is_symlink() and (blob := path.resolve()).parent == blobs:
            sha256 = blob.name if _SHA256.fullmatch(blob.name) else None
            files[f"blobs/{blob.name}"] = _file(f"blobs/{blob.name}", blob, sha256=sha256)
            links.append((below, f"{'../' * (below.count('/'))}blobs/{blob.name}"))
        else:
            files[below] = _file(below, path)
    revision = ref.revision or "main"
    if (named := folder / "refs" / revision).is_file():
        files[f"refs/{revision}"] = _file(f"refs/{revision}", named, last=True)
    root = f"{hf_home_there.rstrip('/')}/hub/{folder.name}"
    return SourceTree(ref.ref, root, tuple(files.values()), tuple(links))


def _at(place: Path, told: str) -> SourceTree:
    if place.is_dir():
        files, links = [], []
        for name, path in _walk(place, "", place.resolve()):
            if (target := _inner_target(name, path, place.resolve())) is not None:
                links.append((name, target))
            else:
                files.append(_file(name, path))
        return SourceTree(told, str(place), tuple(files), tuple(links))
    if not place.is_file():
        raise ProfileError(f"There is no {place} on this box.", code="weights_missing")
    parts = split_model_files(place)
    return SourceTree(told, str(place.parent), tuple(_file(part.name, part) for part in parts))


def _inner_target(name: str, path: Path, root: Path) -> str | None:
    """Return the target of a link that stays inside the root; None for anything else."""
    if not path.is_symlink() or not path.resolve().is_relative_to(root):
        return None
    target = str(path.readlink())
    return None if refuse_target(name, target) else target


def _walk(folder: Path, before: str, root: Path | None = None, deep: int = 0) -> Iterator[tuple[str, Path]]:
    """List files and links to files, and links to folders below `root`. Folders behind other links are walked.

    What is neither is left out, as are broken links and unfinished downloads.
    """
    if deep > _DEEPEST:
        raise HostError(f"{folder} is too deep: its links may lead in a circle.", code="weights_unreadable")
    for path in sorted(folder.iterdir()):
        name = f"{before}{path.name}"
        if path.is_dir() and not (root and _inner_target(name, path, root)):
            yield from _walk(path, f"{name}/", root, deep + 1)
        elif path.is_dir() or (path.is_file() and not path.name.endswith((PART, ".incomplete"))):
            yield name, path


def _file(name: str, path: Path, *, sha256: str | None = None, last: bool = False) -> SourceFile:
    seen = path.stat()
    return SourceFile(name, path, seen.st_size, seen.st_mtime_ns, stat.S_IMODE(seen.st_mode), sha256, last)


def _check_names(tree: SourceTree) -> None:
    names: Iterable[str] = [*(file.name for file in tree.files), *(name for name, _ in tree.links)]
    count = 0
    for name in names:
        count += 1
        if why := refuse_name(name):
            raise HostError(
                f"A file of {tree.model} cannot be sent: {PurePosixPath(name).name[:80]!r}: {why}.",
                code="weights_name",
                hint="Rename the file, or move it out of the model's folder.",
            )
    if count > MOST_NAMES:
        raise HostError(
            f"{tree.model} has {count} files, more than the {MOST_NAMES} that are sent.",
            code="weights_name",
            hint="Give the model a folder of its own.",
        )
