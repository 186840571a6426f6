"""Weights on a box, found without a network and without the hub's library.

Reads folder entries, one index file and the headers of weights; never weights.

Rule: a partial download does not count. A folder is complete if it has every shard that its index or the shards' own
names (`-00001-of-00005`) list, and each file is as long as its header says.

Standard library alone, Python 3.10: this box runs this module, and `nodes.programs` ships it to other boxes, where
`run` prints what is there.
"""

from __future__ import annotations

import json
import os
import re
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import IO, TYPE_CHECKING, Any

from sparkdash.catalog.checkpoint import on_disk

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparkdash.domain.profile import ModelRef

WEIGHTS = (".safetensors", ".gguf", ".bin", ".pt", ".pth", ".onnx", ".h5", ".msgpack")
SMALL = 16 << 20
"""Size below which a file does not matter for the page cache."""

PART = ".sparkdash-part"
"""Folder beside a file that another box copies here, in which an interrupted copy keeps it."""
_UNFINISHED = re.compile(r"\.[^/]+\.\w{6}")
"""Name under which rsync writes a file."""
_INDEX = "model.safetensors.index.json"


INDEX_LIMIT, HEADER_LIMIT = 64 << 20, 100_000_000
"""Largest index and header in bytes; the largest known index has 10 MB, and the header's limit is the format's own."""
LFS_POINTER = b"version https://git-lfs.github.com/spec/"
_END = re.compile(rb'"data_offsets"\s*:\s*\[\s*\d+\s*,\s*(\d+)\s*\]')


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
    broken: bool = False
    """Whether something is here that no engine can load, and no download fixes by itself."""


def find_weights(ref: ModelRef, hf_home: Path, *, contained: bool = True) -> Presence:
    """Find the weights of `ref`; `hf_home` is the Hugging Face folder, whose `hub` is the cache. Reads the disk.

    `contained`: whether the engine runs in a container, which sees the cache at another path.
    """
    try:
        return _in_cache(ref, hf_home, contained=contained) if ref.hf else _at(Path(ref.ref), ref.ref)
    except OSError as error:
        return Presence(ref.ref, here=False, size=0, lacks=f"cannot be read: {error.strerror}")


def weight_files_of(ref: ModelRef, hf_home: Path) -> frozenset[Path]:
    """Files of weights of `ref` on this box, links followed; empty without any, or if they cannot be read."""
    try:
        if ref.hf:
            files = _files_in_cache(ref, hf_home)
        else:
            place = Path(ref.ref)
            files = _files(place) if place.is_dir() else split_model_files(place)
        return frozenset(file.resolve() for file in files if is_weights(file.name))
    except OSError:
        return frozenset()


def _files_in_cache(ref: ModelRef, hf_home: Path) -> list[Path]:
    repo, quant = split_repository(ref.ref)
    snapshot = on_disk.snapshot_folder(on_disk.repository_folder(hf_home, repo), ref.revision)
    files = _files(snapshot) if snapshot else []
    return [file for file in files if quant is None or is_quant(file.name, quant)]


def split_model_files(file: Path) -> list[Path]:
    """List a file with the other parts of its split model, as far as they are here."""
    return [
        part
        for name in sorted({file.name, *on_disk.shard_names(file.name)})
        if (part := file.with_name(name)).is_file()
    ]


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
    here, broken = all(one.here for one in each), any(one.broken for one in each)
    return Presence(", ".join(one.ref for one in each), here, sum(one.size for one in each), lacks or None, broken)


def may_exist(path: Path) -> bool:
    """Whether the path is there, or cannot be looked at."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


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
    missing = {*shards, *(sister for name in weights for sister in on_disk.shard_names(name))} - here
    return f"{len(missing)} of its weight files" if missing else None


def is_weights(name: str) -> bool:
    return name.lower().endswith(WEIGHTS)


def is_quant(name: str, quant: str) -> bool:
    return name.lower().endswith(".gguf") and quant.lower() in name.lower()


def _in_cache(ref: ModelRef, hf_home: Path, *, contained: bool) -> Presence:
    repo, quant = split_repository(ref.ref)
    place = on_disk.repository_folder(hf_home, repo)
    snapshot = on_disk.snapshot_folder(place, ref.revision)
    if snapshot is None:
        return Presence(ref.ref, here=False, size=_bytes(place / "blobs"), lacks="not in the cache")
    files = _files_in_cache(ref, hf_home)
    broken = _broken(files) or (_leading_out(files) if contained else None)
    lacks = _lacks(snapshot, quant) or broken
    return Presence(ref.ref, not lacks, _bytes(place / "blobs" if lacks else snapshot), lacks, broken is not None)


def _at(path: Path, told: str) -> Presence:
    if path.is_dir():
        names = [file.name for file in _files(path)]
        if any(PART in file.parts for file in path.rglob("*")) or any(map(_UNFINISHED.fullmatch, names)):
            return Presence(told, here=False, size=_bytes(path), lacks="the rest of a copy")
        # a folder of unknown files is an engine's own format: being non-empty must suffice
        broken = _broken(_files(path))
        lacks = (_lacks(path) if not names or any(map(is_weights, names)) else None) or broken
        return Presence(told, not lacks, _bytes(path), lacks, broken is not None)
    if not path.is_file():
        return Presence(told, here=False, size=0, lacks="no such file or folder")
    parts = {path.name, *on_disk.shard_names(path.name)}
    here = split_model_files(path)
    missing = len(parts) - len(here)
    size, broken = sum(file.stat().st_size for file in here), _broken(here)
    lacks = f"{missing} of its parts" if missing else broken
    return Presence(told, not lacks, size, lacks, broken is not None)


def _lacks(folder: Path, quant: str | None = None) -> str | None:
    names = [str(file.relative_to(folder)) for file in _files(folder)]
    return missing_parts(names, _indexed(folder / _INDEX), quant)


def _indexed(index: Path) -> list[str]:
    try:
        return list(set(json.loads(on_disk.read_small(index, INDEX_LIMIT))["weight_map"].values()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return []


def _bytes(folder: Path) -> int:
    """Add up each file once, following links: a snapshot's links lead to its blobs."""
    return sum({(stat.st_dev, stat.st_ino): stat.st_size for stat in (f.stat() for f in _files(folder))}.values())


def _files(folder: Path) -> list[Path]:
    """Files and links to files, without broken links."""
    return [path for path in folder.rglob("*") if path.is_file()] if folder.is_dir() else []


def _leading_out(files: Iterable[Path]) -> str | None:
    """Name the first link that a container cannot follow, as it sees the cache at another path; None without one."""
    out = sorted(file.name for file in files if file.is_symlink() and file.readlink().is_absolute())
    return f"{out[0]} is a link to an absolute path, which leads nowhere in a container" if out else None


def _broken(files: Iterable[Path]) -> str | None:
    """Describe the first file of weights that is not whole; None if each is, or cannot be judged."""
    for file in sorted(file for file in files if is_weights(file.name)):
        with suppress(OSError):
            seen = file.stat()
            if fault := _fault(str(file), seen.st_size, seen.st_mtime_ns):
                return f"{file.name} {fault}"
    return None


@lru_cache(maxsize=4096)
def _fault(file: str, size: int, _changed_ns: int) -> str | None:
    """Describe what is wrong with a file of weights; None for a whole one, or one of another format."""
    if size == 0:
        return "is empty"
    with Path(file).open("rb") as opened:
        head = opened.read(48)
        if head.startswith(LFS_POINTER):
            return "is a Git LFS pointer, not the weights"
        opened.seek(0)
        try:
            least = _gguf_bytes(opened) if head.startswith(b"GGUF") else _safetensors_bytes(opened)
        except (on_disk.MalformedHeaderError, ValueError, RecursionError):
            return "is cut within its header"
    return f"is cut: {size} of {least} bytes" if size < least else None


def _safetensors_bytes(file: IO[bytes]) -> int:
    """Least length of a safetensors file by its header; 0 for a file of another format."""
    length = int.from_bytes(file.read(8), "little")
    header = file.read(min(length, HEADER_LIMIT))
    if length > HEADER_LIMIT or not header.startswith(b"{"):
        return 0
    ends = map(int, _END.findall(header))
    return 8 + length + (max(ends, default=0) if len(header) == length else 0)


def _gguf_bytes(file: IO[bytes]) -> int:
    """Least length of a GGUF file; 0 for an unknown version. A tensor of an unknown type counts by its offset alone."""
    try:
        header = on_disk.read_gguf(file)
    except on_disk.UnknownVersionError:
        return 0
    return header.begin + max((one.offset + one.bytes for one in header.tensors), default=0)


def other_cache(hf_home: Path) -> str | None:
    """Say which variable of the hub's library names another cache than `hf_home`; None without one."""
    hub = hf_home / "hub"
    for name, ours in (("HF_HUB_CACHE", hub), ("HUGGINGFACE_HUB_CACHE", hub), ("HF_HOME", hf_home)):
        if (told := os.environ.get(name)) and Path(told).expanduser() != ours:
            return (
                f"{name} is {told}, but sparkdash uses `hf_home` of config.toml: {hf_home}. "
                "Set it to the folder above `hub`."
            )
    return None


def how_to_fix(ref: ModelRef) -> str:
    """Say what fixes weights that are here and broken."""
    if ref.hf:
        return (
            "Remove that file from the cache, its link and what it leads to, and run `sparkdash pull` for the profile."
        )
    return f"Run `git lfs pull` there, or download it again: `{download_command(ref.ref)}`."


def download_command(path: str) -> str:
    """Return the command that fetches a model to this folder, or this GGUF file."""
    folder, _, name = path.rpartition("/")
    return (
        f"hf download OWNER/NAME {f'{name} --local-dir {folder}' if name.endswith('.gguf') else f'--local-dir {path}'}"
    )


def run(hf_home: str, models: str) -> None:
    """Print whether each model is complete here. `models`: a JSON list with `ref`, `hf` and `revision` of each."""
    refs: Any = [SimpleNamespace(**one) for one in json.loads(models)]
    sys.stdout.write(json.dumps([find_weights(ref, Path(hf_home).expanduser()).here for ref in refs]) + "\n")
