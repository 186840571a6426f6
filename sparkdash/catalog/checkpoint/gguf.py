"""Header of GGUF files: metadata and the list of tensors. No weight is read.

Owns: the format (ggml's docs/gguf.md, versions 2 and 3) and its metadata keys. Must not know the purpose of a tensor.
Every malformed header is a ProfileError. Long arrays, which are the tokenizer's, are skipped.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from sparkdash.catalog.checkpoint.safetensors import Tensor, unreadable_weights

MAX_ENTRIES = 1_000_000
"""Limit of metadata entries or tensors; real files have thousands."""
KEPT_ITEMS = 4096
"""Longest array that is kept: arrays with one item per layer are shorter, vocabularies are longer."""
MAX_DEPTH = 4
ALIGNMENT = 32

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_TYPES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 10: "Q2_K", 11: "Q3_K", 12: "Q4_K",
    13: "Q5_K", 14: "Q6_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S",
    22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M",
    30: "BF16", 39: "MXFP4",
}  # fmt: skip
"""Names of ggml_type; an unknown one is shown by its number. Sizes come from the tensors' offsets."""


class GgufHeader(NamedTuple):
    """Content of one file's header."""

    metadata: Mapping[str, Any]
    tensors: tuple[Tensor, ...]


def read_gguf_header(file: Path) -> GgufHeader:
    """Read the metadata and tensors of one file.

    Raises:
        ProfileError: the file cannot be read, is no GGUF, or is malformed or cut off.
    """
    try:
        with file.open("rb") as opened:
            if opened.seek(0, 2) < 24:
                raise unreadable_weights(f"{file} is no GGUF file: it is too short")
            with mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as view:
                return _Reader(view, file).header()
    except OSError as error:
        raise unreadable_weights(f"{file} cannot be read: {error.strerror}") from None
    except (struct.error, UnicodeDecodeError, _MalformedError):
        raise unreadable_weights(
            f"{file} has a malformed GGUF header, or is cut off", "Download the file again if it was broken off."
        ) from None


class _MalformedError(Exception):
    pass


class _Reader:
    """Sequential reader of one header."""

    def __init__(self, view: mmap.mmap, file: Path) -> None:
        self.view, self.file, self.at = view, file, 0

    def header(self) -> GgufHeader:
        if self.view[:4] != b"GGUF":
            raise unreadable_weights(f"{self.file} is no GGUF file")
        self.at = 4
        (release,) = self.unpack("I")
        if release not in (2, 3):
            raise unreadable_weights(f"{self.file} has GGUF version {release}; 2 and 3 are known")
        tensors, entries = self.unpack("QQ")
        if max(tensors, entries) > MAX_ENTRIES:
            raise _MalformedError
        metadata = {}
        for _ in range(entries):
            key = self.string()
            metadata[key] = self.value(self.unpack("I")[0], MAX_DEPTH)
        return GgufHeader(metadata, self.tensors(tensors, metadata))

    def tensors(self, number: int, metadata: Mapping[str, Any]) -> tuple[Tensor, ...]:
        """Read the tensors. Sizes are the distances between offsets, padding included."""
        found = sorted((self.entry() for _ in range(number)), key=lambda entry: entry[0])
        padding = metadata.get("general.alignment", ALIGNMENT)
        if type(padding) is not int or not 0 < padding <= 2**20:
            raise _MalformedError
        room = len(self.view) - -(-self.at // padding) * padding
        ends = [entry[0] for entry in found[1:]] + [room] * bool(found)
        if found and (found[-1][0] > room or any(prod(entry[3]) > 2**60 for entry in found)):
            raise _MalformedError
        return tuple(
            Tensor(name, _TYPES.get(kind, f"type {kind}"), shape, end - offset)
            for (offset, name, kind, shape), end in zip(found, ends, strict=True)
        )

    def entry(self) -> tuple[int, str, int, tuple[int, ...]]:
        """Read offset, name, type and shape of one tensor."""
        name = self.string()
        (dimensions,) = self.unpack("I")
        if dimensions > 8:
            raise _MalformedError
        shape = self.unpack(f"{dimensions}Q")
        kind, offset = self.unpack("IQ")
        return offset, name, kind, shape

    def value(self, kind: int, depth: int) -> Any:
        if kind in _SCALARS:
            return self.unpack(_SCALARS[kind])[0]
        if kind == _STRING:
            return self.string()
        if kind != _ARRAY or depth == 0:
            raise _MalformedError
        inner, length = self.unpack("IQ")
        return self.array(inner, length, depth)

    def array(self, inner: int, length: int, depth: int) -> list[Any] | None:
        """Read an array; None for a long one, which is skipped."""
        if length > len(self.view):
            raise _MalformedError
        if length <= KEPT_ITEMS:
            return [self.value(inner, depth - 1) for _ in range(length)]
        if inner in _SCALARS:
            self.skip(struct.calcsize(f"<{_SCALARS[inner]}") * length)
        elif inner == _STRING:
            for _ in range(length):
                self.skip(self.unpack("Q")[0])
        else:
            raise _MalformedError
        return None

    def string(self) -> str:
        (length,) = self.unpack("Q")
        begin = self.at
        self.skip(length)
        return self.view[begin : self.at].decode()

    def skip(self, length: int) -> None:
        self.at += length
        if self.at > len(self.view):
            raise _MalformedError

    def unpack(self, form: str) -> tuple[Any, ...]:
        found = struct.unpack_from(f"<{form}", self.view, self.at)
        self.at += struct.calcsize(f"<{form}")
        return found
