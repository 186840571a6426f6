"""Weights on a box, found without a network and without the hub's library.

Reads folder entries, one index file and the headers of weights; never weights.

Rule: a partial download does not count. A folder is complete if it has every shard that its index or the shards' own
names (`-00001-of-00005`) list, and each file is as long as its header says.

Standard library alone, Python 3.10: this box runs this module, and `nodes.programs` ships it to other boxes, where
`run` prints what is there.
"""

from __future__ import annotations

import errno
import json
import math
import os
import re
import stat
import struct
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import IO, TYPE_CHECKING, Any

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
_SHARD = re.compile(r"(?P<before>.*)-\d{5}-of-(?P<count>\d{5})(?P<after>\.\w+)")


INDEX_LIMIT, HEADER_LIMIT = 64 << 20, 100_000_000
"""Largest index and header in bytes; the largest known index has 10 MB, and the header's limit is the format's own."""
GGUF_LIMIT = 1 << 32
"""Longest string or array of a GGUF file that is believed."""
LFS_POINTER = b"version https://git-lfs.github.com/spec/"
_END = re.compile(rb'"data_offsets"\s*:\s*\[\s*\d+\s*,\s*(\d+)\s*\]')
_SCALARS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
"""Bytes of GGUF's plain values by kind; 8 is a string, 9 an array."""
_BLOCKS = {
    0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 10: (256, 84),
    11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 16: (256, 66), 17: (256, 74), 18: (256, 98),
    19: (256, 50), 20: (32, 18), 21: (256, 110), 22: (256, 82), 23: (256, 136), 24: (1, 1), 25: (1, 2), 26: (1, 4),
    27: (1, 8), 28: (1, 8), 29: (256, 56), 30: (1, 2), 39: (32, 17),
}  # fmt: skip
"""Values and bytes of a block of each ggml_type (ggml.h, ggml-common.h); of an unknown one only the offset counts."""


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
    snapshot = _snapshot(repository_folder(hf_home, repo), ref.revision)
    files = _files(snapshot) if snapshot else []
    return [file for file in files if quant is None or is_quant(file.name, quant)]


def _snapshot(repository: Path, revision: str | None) -> Path | None:
    """Folder of a revision in the cache; None without one."""
    commit = revision or "main"
    with suppress(OSError, ValueError):
        commit = _read(repository / "refs" / commit, 1024).decode().strip()
    folder = repository / "snapshots" / commit
    return folder if commit and ".." not in commit and folder.is_dir() else None


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


def _in_cache(ref: ModelRef, hf_home: Path, *, contained: bool) -> Presence:
    repo, quant = split_repository(ref.ref)
    place = repository_folder(hf_home, repo)
    snapshot = _snapshot(place, ref.revision)
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
    if path.is_file():
        parts = {path.name, *_sisters(path.name)}
        here = [file for file in map(path.with_name, parts) if file.is_file()]
        missing = len(parts) - len(here)
        size, broken = sum(file.stat().st_size for file in here), _broken(here)
        lacks = f"{missing} of its parts" if missing else broken
        return Presence(told, not lacks, size, lacks, broken is not None)
    return Presence(told, here=False, size=0, lacks="no such file or folder")


def _lacks(folder: Path, quant: str | None = None) -> str | None:
    names = [str(file.relative_to(folder)) for file in _files(folder)]
    return missing_parts(names, _indexed(folder / _INDEX), quant)


def _indexed(index: Path) -> list[str]:
    try:
        return list(set(json.loads(_read(index, INDEX_LIMIT))["weight_map"].values()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return []


def _bytes(folder: Path) -> int:
    """Add up each file once, following links: a snapshot's links lead to its blobs."""
    return sum({(stat.st_dev, stat.st_ino): stat.st_size for stat in (f.stat() for f in _files(folder))}.values())


def _files(folder: Path) -> list[Path]:
    """Files and links to files, without broken links."""
    return [path for path in folder.rglob("*") if path.is_file()] if folder.is_dir() else []


def _read(file: Path, limit: int) -> bytes:
    """Read a small regular file; a pipe or device is none. Raises OSError."""
    with os.fdopen(os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as opened:
        found = opened.read(limit + 1) if stat.S_ISREG(os.fstat(opened.fileno()).st_mode) else b""
    if not found or len(found) > limit:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(file))
    return found


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
        except (struct.error, OverflowError, ValueError, RecursionError):
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
    """Least length of a GGUF file by its header. Raises struct.error for one that ends within it."""

    def take(form: str) -> tuple[Any, ...]:
        return struct.unpack(f"<{form}", file.read(struct.calcsize(f"<{form}")))

    def length() -> int:
        (count,) = take("Q")
        if count > GGUF_LIMIT:
            raise struct.error
        return int(count)

    def skip(kind: int) -> int | None:
        """Skip a value; return it if it is a plain number of four bytes."""
        if kind == 8:
            file.seek(length(), 1)
        elif kind == 9:
            inner, count = take("I")[0], length()
            if inner in _SCALARS:
                file.seek(_SCALARS[inner] * count, 1)
            else:
                for _ in range(count):
                    skip(inner)
        elif kind == 4:
            return int(take("I")[0])
        elif kind in _SCALARS:
            file.seek(_SCALARS[kind], 1)
        else:
            raise struct.error
        return None

    _, _, tensors, entries = take("4sIQQ")
    alignment = 32
    for _ in range(entries):
        name = length()
        key = file.read(min(name, 64))
        file.seek(name - len(key), 1)
        value = skip(take("I")[0])
        alignment = value if key == b"general.alignment" and value else alignment
    last = 0
    for _ in range(tensors):
        file.seek(length(), 1)
        shape = take(f"{min(take('I')[0], 8)}Q")
        kind, offset = take("IQ")
        values, size = _BLOCKS.get(kind, (1, 0))
        last = max(last, offset + math.prod(shape) // values * size)
    return -(-file.tell() // alignment) * alignment + last


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
