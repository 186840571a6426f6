"""Weights on this box, found without a network and without the hub's library.

Owns: what a folder of weights must hold to be whole, and where the Hugging Face cache keeps a repository.
Must not know: how weights are fetched. Reads folder entries and one small index file; never weights.

Rule: half a download is not there. A folder is whole when every shard that its index or the shards' own names
(`-00001-of-00005`) speak of is in it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sparkdash.catalog.checkpoint.weights import locate_checkpoint
from sparkdash.domain.profile import ModelRef
from sparkdash.errors import ProfileError
from sparkdash.units import MIB

WEIGHTS = (".safetensors", ".gguf", ".bin", ".pt", ".pth", ".onnx", ".h5", ".msgpack")
"""Suffixes of files that hold weights."""
SMALL = 16 * MIB
"""Files below it are no matter for the page cache."""

_INDEX = "model.safetensors.index.json"
_SHARD = re.compile(r"(?P<before>.*)-\d{5}-of-(?P<count>\d{5})(?P<after>\.\w+)")


@dataclass(frozen=True, slots=True)
class Presence:
    """What is on this box of one model, or of all models of a profile."""

    ref: str
    """The path or the repository, as the profile says it."""
    here: bool
    size: int
    """Bytes on disk: of the model when it is here, else of what came so far."""
    lacks: str | None = None
    """What is missing, in words; None when it is here."""


def find_weights(ref: ModelRef, hf_home: Path) -> Presence:
    """What is here of `ref`; `hf_home` is the Hugging Face folder, whose `hub` is the cache. Reads the disk, briefly."""
    try:
        return _in_cache(ref, hf_home) if ref.hf else _at(Path(ref.ref), ref.ref)
    except OSError as error:
        return Presence(ref.ref, here=False, size=0, lacks=f"cannot be read: {error.strerror}")


def files(ref: ModelRef, hf_home: Path) -> frozenset[Path]:
    """The files of weights of `ref` that are here, links followed; empty when none are, or they cannot be looked at."""
    try:
        if ref.hf:
            repo, quant = of_hub(ref.ref)
            snapshot = locate_checkpoint(ModelRef(hf=repo, revision=ref.revision), hf_home)
            here = [file for file in _files(snapshot) if quant is None or is_quant(file.name, quant)]
        elif (place := Path(ref.ref)).is_dir():
            here = _files(place)
        else:
            here = [file for name in {place.name, *_sisters(place.name)} if (file := place.with_name(name)).is_file()]
        return frozenset(file.resolve() for file in here if is_weights(file.name))
    except (OSError, ProfileError):
        return frozenset()


def blobs(hf_home: Path) -> frozenset[Path]:
    """Every whole file of SMALL bytes or more in the cache, whichever repository it is of; empty where nothing can be looked at."""
    found = set()
    for file in (hf_home / "hub").glob("models--*/blobs/*"):
        with suppress(OSError):
            if file.stat().st_size >= SMALL and file.suffix != ".incomplete":
                found.add(file.resolve())
    return frozenset(found)


def weight_files(refs: Iterable[ModelRef], hf_home: Path) -> dict[str, frozenset[Path]]:
    """The files of weights of each model that is here, by its path or repository."""
    found = {ref.ref: files(ref, hf_home) for ref in refs}
    return {name: here for name, here in found.items() if here}


def sum_presence(found: Iterable[Presence]) -> Presence | None:
    """All models of a profile as one: here when each is. None for a profile without models."""
    each = {one.ref: one for one in found}.values()
    if not each:
        return None
    lacks = "; ".join(f"{one.ref}: {one.lacks}" for one in each if one.lacks)
    size = sum(one.size for one in each)
    return Presence(", ".join(one.ref for one in each), all(one.here for one in each), size, lacks or None)


def repository(hf_home: Path, repo: str) -> Path:
    """Where the cache keeps `owner/name`."""
    return hf_home / "hub" / f"models--{repo.replace('/', '--')}"


def of_hub(ref: str) -> tuple[str, str | None]:
    """(repository, quantisation) of llama.cpp's `owner/name:Q4_K_M`; without a colon the second is None."""
    repo, _, quant = ref.partition(":")
    return repo, quant or None


def lacking(names: Iterable[str], shards: Iterable[str] = (), quant: str | None = None) -> str | None:
    """What a folder with these files lacks to be whole, in words; None when it lacks nothing. Pure.

    `shards` are the files that its index names; with `quant` only GGUF files of that quantisation count.
    """
    here = set(names)
    weights = [name for name in here if is_weights(name) and (quant is None or is_quant(name, quant))]
    if not weights:
        return "no weights"
    missing = {*shards, *(sister for name in weights for sister in _sisters(name))} - here
    return f"{len(missing)} of its weight files" if missing else None


def is_weights(name: str) -> bool:
    """Does a file of that name hold weights?"""
    return name.lower().endswith(WEIGHTS)


def is_quant(name: str, quant: str) -> bool:
    """Is it a GGUF file of that quantisation?"""
    return name.lower().endswith(".gguf") and quant.lower() in name.lower()


def _sisters(name: str) -> list[str]:
    """Every shard of the set that a shard's name speaks of."""
    found = _SHARD.fullmatch(name)
    if not found:
        return []
    count = found["count"]
    return [f"{found['before']}-{number:05d}-of-{count}{found['after']}" for number in range(1, int(count) + 1)]


def _in_cache(ref: ModelRef, hf_home: Path) -> Presence:
    repo, quant = of_hub(ref.ref)
    blobs = repository(hf_home, repo) / "blobs"
    try:
        snapshot = locate_checkpoint(ModelRef(hf=repo, revision=ref.revision), hf_home)
    except ProfileError:
        return Presence(ref.ref, here=False, size=_bytes(blobs), lacks="not in the cache")
    lacks = _lacks(snapshot, quant)
    return Presence(ref.ref, not lacks, _bytes(blobs if lacks else snapshot), lacks)


def _at(path: Path, told: str) -> Presence:
    if path.is_dir():
        # a folder whose files are of no known kind is some engine's own format: that it is not empty must do
        names = [file.name for file in _files(path)]
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
    return lacking(names, _indexed(folder / _INDEX), quant)


def _indexed(index: Path) -> list[str]:
    try:
        return list(set(json.loads(index.read_bytes())["weight_map"].values()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []


def _bytes(folder: Path) -> int:
    """Of every file once, through links: those of a snapshot lead to its blobs."""
    return sum({(stat.st_dev, stat.st_ino): stat.st_size for stat in (f.stat() for f in _files(folder))}.values())


def _files(folder: Path) -> list[Path]:
    """Files and links to files; a link to nothing is none."""
    return [path for path in folder.rglob("*") if path.is_file()] if folder.is_dir() else []
