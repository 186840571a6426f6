"""Weights on a box, found without a network and without the hub's library.

Reads folder entries and one small index file; never weights.

Rule: a partial download does not count. A folder is complete if it has every shard that its index or the shards' own
names (`-00001-of-00005`) list.

Standard library alone, Python 3.10: this box runs this module, and `nodes.programs` ships it to other boxes, where
`run` prints what is there.
"""

from __future__ import annotations

import json
import re
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from sparkdash.paths import LARGE, read_small_file, read_small_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparkdash.domain.profile import ModelRef

WEIGHTS = (".safetensors", ".gguf", ".bin", ".pt", ".pth", ".onnx", ".h5", ".msgpack")
"""Suffixes of files that hold weights."""
SMALL = 16 << 20
"""Size below which a file does not matter for the page cache."""

PART = ".sparkdash-part"
"""Folder beside a file that another box copies here, in which an interrupted copy keeps it."""
_UNFINISHED = re.compile(r"\.[^/]+\.\w{6}")
"""Name under which rsync writes a file."""
_INDEX = "model.safetensors.index.json"
_SHARD = re.compile(r"(?P<before>.*)-\d{5}-of-(?P<count>\d{5})(?P<after>\.\w+)")


@dataclass(frozen=True, slots=True)
class Presence:
    """Presence on this box of one model, or of all models of a profile."""

    ref: str
    """Path or repository, as in the profile."""
    here: bool
    size: int
    """Bytes on disk: of the whole model, or of the part fetched so far."""
    lacks: str | None = None
    """Missing part in words; None for a complete model."""


def find_weights(ref: ModelRef, hf_home: Path) -> Presence:
    """Find the weights of `ref`; `hf_home` is the Hugging Face folder, whose `hub` is the cache. Reads the disk."""
    try:
        return _in_cache(ref, hf_home) if ref.hf else _at(Path(ref.ref), ref.ref)
    except OSError as error:
        return Presence(ref.ref, here=False, size=0, lacks=f"cannot be read: {error.strerror}")


def weight_files_of(ref: ModelRef, hf_home: Path) -> frozenset[Path]:
    """Files of weights of `ref` on this box, links followed; empty without any, or if they cannot be read."""
    try:
        files = _files_in_cache(ref, hf_home) if ref.hf else _files_at(Path(ref.ref))
        return frozenset(file.resolve() for file in files if is_weights(file.name))
    except OSError:
        return frozenset()


def _files_in_cache(ref: ModelRef, hf_home: Path) -> list[Path]:
    repo, quant = split_repository(ref.ref)
    snapshot = _snapshot(repository_folder(hf_home, repo), ref.revision)
    files = _files(snapshot) if snapshot else []
    return [file for file in files if quant is None or is_quant(file.name, quant)]


def _snapshot(repository: Path, revision: str | None) -> Path | None:
    """Folder of a revision in the cache; None without one."""
    commit = revision or "main"
    with suppress(OSError, ValueError):
        commit = read_small_text(repository / "refs" / commit).strip()
    folder = repository / "snapshots" / commit
    return folder if commit and ".." not in commit and folder.is_dir() else None


def _files_at(place: Path) -> list[Path]:
    """Files of a folder, or a file with the other parts of its split model."""
    return _files(place) if place.is_dir() else split_model_files(place)


def split_model_files(file: Path) -> list[Path]:
    """List a file with the other parts of its split model, as far as they are here."""
    return [part for name in sorted({file.name, *_sisters(file.name)}) if (part := file.with_name(name)).is_file()]


def cached_blobs(hf_home: Path) -> frozenset[Path]:
    """Complete files of SMALL bytes or more in the cache, of any repository; empty if it cannot be read."""
    found = set()
    for file in (hf_home / "hub").glob("models--*/blobs/*"):
        with suppress(OSError):
            if file.stat().st_size >= SMALL and file.suffix != ".incomplete":
                found.add(file.resolve())
    return frozenset(found)


def sum_presence(found: Iterable[Presence]) -> Presence | None:
    """Join the presence of a profile's models: here if each is. None for a profile without models."""
    each = {one.ref: one for one in found}.values()
    if not each:
        return None
    lacks = "; ".join(f"{one.ref}: {one.lacks}" for one in each if one.lacks)
    size = sum(one.size for one in each)
    return Presence(", ".join(one.ref for one in each), all(one.here for one in each), size, lacks or None)


def repository_folder(hf_home: Path, repo: str) -> Path:
    return hf_home / "hub" / f"models--{repo.replace('/', '--')}"


def split_repository(ref: str) -> tuple[str, str | None]:
    """Split llama.cpp's `owner/name:Q4_K_M` into repository and quantisation; None without a colon."""
    repo, _, quant = ref.partition(":")
    return repo, quant or None


def missing_parts(names: Iterable[str], shards: Iterable[str] = (), quant: str | None = None) -> str | None:
    """Describe what a folder with these files lacks; None for a complete one.

    `shards` are the files in its index; with `quant` only GGUF files of that quantisation count.
    """
    here = set(names)
    weights = [name for name in here if is_weights(name) and (quant is None or is_quant(name, quant))]
    if not weights:
        return "no weights"
    missing = {*shards, *(sister for name in weights for sister in _sisters(name))} - here
    return f"{len(missing)} of its weight files" if missing else None


def is_weights(name: str) -> bool:
    return name.lower().endswith(WEIGHTS)


def is_quant(name: str, quant: str) -> bool:
    return name.lower().endswith(".gguf") and quant.lower() in name.lower()


def _sisters(name: str) -> list[str]:
    """Names of all shards in the set of a shard; empty for any other name."""
    found = _SHARD.fullmatch(name)
    if not found:
        return []
    count = found["count"]
    return [f"{found['before']}-{number:05d}-of-{count}{found['after']}" for number in range(1, int(count) + 1)]


def _in_cache(ref: ModelRef, hf_home: Path) -> Presence:
    repo, quant = split_repository(ref.ref)
    place = repository_folder(hf_home, repo)
    snapshot = _snapshot(place, ref.revision)
    if snapshot is None:
        return Presence(ref.ref, here=False, size=_bytes(place / "blobs"), lacks="not in the cache")
    lacks = _lacks(snapshot, quant)
    return Presence(ref.ref, not lacks, _bytes(place / "blobs" if lacks else snapshot), lacks)


def _at(path: Path, told: str) -> Presence:
    if path.is_dir():
        names = [file.name for file in _files(path)]
        if any(PART in file.parts for file in path.rglob("*")) or any(map(_UNFINISHED.fullmatch, names)):
            return Presence(told, here=False, size=_bytes(path), lacks="the rest of a copy")
        # a folder of unknown files is an engine's own format: being non-empty must suffice
        lacks = _lacks(path) if not names or any(map(is_weights, names)) else None
        return Presence(told, not lacks, _bytes(path), lacks)
    if path.is_file():
        parts = {path.name, *_sisters(path.name)}
        here = [file for file in map(path.with_name, parts) if file.is_file()]
        missing = len(parts) - len(here)
        size = sum(file.stat().st_size for file in here)
        return Presence(told, not missing, size, f"{missing} of its parts" if missing else None)
    return Presence(told, here=False, size=0, lacks="no such file or folder")


def _lacks(folder: Path, quant: str | None = None) -> str | None:
    names = [str(file.relative_to(folder)) for file in _files(folder)]
    return missing_parts(names, _indexed(folder / _INDEX), quant)


def _indexed(index: Path) -> list[str]:
    try:
        return list(set(json.loads(read_small_file(index, LARGE))["weight_map"].values()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return []


def _bytes(folder: Path) -> int:
    """Add up each file once, following links: a snapshot's links lead to its blobs."""
    return sum({(stat.st_dev, stat.st_ino): stat.st_size for stat in (f.stat() for f in _files(folder))}.values())


def _files(folder: Path) -> list[Path]:
    """Files and links to files, without broken links."""
    return [path for path in folder.rglob("*") if path.is_file()] if folder.is_dir() else []


def run(hf_home: str, models: str) -> None:
    """Print whether each model is complete here. `models`: a JSON list with `ref`, `hf` and `revision` of each."""
    refs: Any = [SimpleNamespace(**one) for one in json.loads(models)]
    sys.stdout.write(json.dumps([find_weights(ref, Path(hf_home).expanduser()).here for ref in refs]) + "\n")
