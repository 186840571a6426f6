"""Models on a disk: where they lie in the hub's cache, names of split files, and headers of GGUF files.

No weight is read. Standard library alone, Python 3.10: `nodes.programs` ships this module to other boxes.
"""

import errno
import mmap
import os
import re
import stat
import struct
from collections.abc import Mapping
from contextlib import suppress
from math import prod
from pathlib import Path
from typing import IO, Any, NamedTuple

_SHARD = re.compile(r"(?P<before>.*)-\d{5}-of-(?P<count>\d{5})(?P<after>\.\w+)")


def repository_folder(hf_home: Path, repo: str) -> Path:
    return hf_home / "hub" / f"models--{repo.replace('/', '--')}"


def snapshot_folder(repository: Path, revision: str | None) -> Path | None:
    """Folder of a revision in the cache, by default of `main`; None without one."""
    commit = revision or "main"
    with suppress(OSError, ValueError):
        commit = read_small(repository / "refs" / commit, 1024).decode().strip()
    folder = repository / "snapshots" / commit
    return folder if commit and ".." not in commit and folder.is_dir() else None


def shard_names(name: str) -> list[str]:
    """Names of all files of a split model, in order, by the name of one of them; empty for any other name."""
    found = _SHARD.fullmatch(name)
    if not found:
        return []
    count = found["count"]
    return [f"{found['before']}-{number:05d}-of-{count}{found['after']}" for number in range(1, int(count) + 1)]


def read_small(file: Path, limit: int) -> bytes:
    """Read a small regular file; a pipe or device is none. Raises OSError."""
    with os.fdopen(os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as opened:
        found = opened.read(limit + 1) if stat.S_ISREG(os.fstat(opened.fileno()).st_mode) else b""
    if not found or len(found) > limit:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(file))
    return found


MAX_ENTRIES = 100_000
"""Limit of metadata entries or tensors; real files have thousands."""
KEPT_ITEMS = 4096
"""Longest array that is kept: arrays with one item per layer are shorter, vocabularies are longer."""
MAX_STRINGS = 4_000_000
"""Limit of the strings of all arrays together: a vocabulary and its merges have 700,000."""
MAX_STRING = 64 * 2**20
MAX_DEPTH = 4
ALIGNMENT = 32

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_TYPES = {
    0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20), 6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34), 10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110), 12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176), 14: ("Q6_K", 256, 210), 16: ("IQ2_XXS", 256, 66), 17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98), 19: ("IQ1_S", 256, 50), 20: ("IQ4_NL", 32, 18), 21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82), 23: ("IQ4_XS", 256, 136), 24: ("I8", 1, 1), 25: ("I16", 1, 2), 26: ("I32", 1, 4),
    27: ("I64", 1, 8), 28: ("F64", 1, 8), 29: ("IQ1_M", 256, 56), 30: ("BF16", 1, 2), 39: ("MXFP4", 32, 17),
}  # fmt: skip
"""Name of each ggml_type, and the values and bytes of its blocks (ggml.h, ggml-common.h)."""


def gguf_type(kind: int) -> str:
    return _TYPES[kind][0] if kind in _TYPES else f"type {kind}"


class GgufTensor(NamedTuple):
    """Tensor as the header declares it; `offset` counts from the end of the header."""

    offset: int
    name: str
    kind: int
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """Bytes by its type; 0 for a type that is not known."""
        _, values, size = _TYPES.get(self.kind, ("", 1, 0))
        return prod(self.shape) // values * size


class GgufHeader(NamedTuple):
    """Header of one file (ggml's docs/gguf.md, 2 and 3); long arrays are left out."""

    metadata: Mapping[str, Any]
    tensors: tuple[GgufTensor, ...]
    """Tensors in the order of their offsets."""
    begin: int
    """Place in the file from which offsets count."""


class MalformedHeaderError(Exception):
    """No header of a GGUF file; the text says why, behind the file's name."""

    def __init__(self, why: str = "has a malformed GGUF header, or is cut off") -> None:
        super().__init__(why)


class UnknownVersionError(MalformedHeaderError):
    """GGUF file of another version than 2 and 3."""


def read_gguf(opened: IO[bytes]) -> GgufHeader:
    """Read the header of an open file. Raises MalformedHeaderError."""
    if opened.seek(0, 2) < 24:
        raise MalformedHeaderError("is no GGUF file: it is too short")
    with mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as view:
        try:
            return _Reader(view).header()
        except (struct.error, UnicodeDecodeError):
            raise MalformedHeaderError from None


class _Reader:
    """Sequential reader of one header."""

    def __init__(self, view: mmap.mmap) -> None:
        self.view, self.at = view, 0
        self._strings = 0

    def header(self) -> GgufHeader:
        if self.view[:4] != b"GGUF":
            raise MalformedHeaderError("is no GGUF file")
        self.at = 4
        (release,) = self.unpack("I")
        if release not in (2, 3):
            raise UnknownVersionError(f"has GGUF version {release}; 2 and 3 are known")
        tensors, entries = self.unpack("QQ")
        if max(tensors, entries) > MAX_ENTRIES:
            raise MalformedHeaderError
        metadata = {}
        for _ in range(entries):
            key = self.string()
            metadata[key] = self.value(self.unpack("I")[0], MAX_DEPTH)
        found = tuple(sorted(self.entry() for _ in range(tensors)))
        padding = metadata.get("general.alignment", ALIGNMENT)
        if type(padding) is not int or not 0 < padding <= 2**20 or any(prod(one.shape) > 2**60 for one in found):
            raise MalformedHeaderError
        return GgufHeader(metadata, found, -(-self.at // padding) * padding)

    def entry(self) -> GgufTensor:
        name = self.string()
        (dimensions,) = self.unpack("I")
        if dimensions > 8:
            raise MalformedHeaderError
        shape = self.unpack(f"{dimensions}Q")
        kind, offset = self.unpack("IQ")
        return GgufTensor(offset, name, kind, shape)

    def value(self, kind: int, depth: int) -> Any:
        if kind in _SCALARS:
            return self.unpack(_SCALARS[kind])[0]
        if kind == _STRING:
            return self.string()
        if kind != _ARRAY or depth == 0:
            raise MalformedHeaderError
        inner, length = self.unpack("IQ")
        return self.array(inner, length, depth)

    def array(self, inner: int, length: int, depth: int) -> list[Any] | None:
        """Read an array; None for a long one, which is skipped."""
        if length > len(self.view):
            raise MalformedHeaderError
        if length <= KEPT_ITEMS:
            return [self.value(inner, depth - 1) for _ in range(length)]
        if inner in _SCALARS:
            self.skip(struct.calcsize(f"<{_SCALARS[inner]}") * length)
        elif inner == _STRING:
            self._strings += length
            if self._strings > MAX_STRINGS:
                raise MalformedHeaderError
            for _ in range(length):
                self.skip(self.unpack("Q")[0])
        else:
            raise MalformedHeaderError
        return None

    def string(self) -> str:
        (length,) = self.unpack("Q")
        if length > MAX_STRING:
            raise MalformedHeaderError
        begin = self.at
        self.skip(length)
        return self.view[begin : self.at].decode()

    def skip(self, length: int) -> None:
        self.at += length
        if self.at > len(self.view):
            raise MalformedHeaderError

    def unpack(self, form: str) -> tuple[Any, ...]:
        found = struct.unpack_from(f"<{form}", self.view, self.at)
        self.at += struct.calcsize(f"<{form}")
        return found
