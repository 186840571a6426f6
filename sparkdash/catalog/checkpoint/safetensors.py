"""Headers of safetensors files: 8 bytes of length, then JSON with tensors, type and shape. No weight is read.

Every malformed header is a ProfileError; sizes are bounded before anything is read.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard, TypeVar

from sparkdash.errors import ProfileError
from sparkdash.paths import open_regular

MAX_HEADER = 100_000_000
"""The format's own limit (MAX_HEADER_SIZE of the safetensors library)."""
MAX_JSON = 64 * 2**20
"""Size limit of config.json and the index; the largest known index has 10 MB."""
MAX_FILES = 2000
INDEX = "model.safetensors.index.json"

T = TypeVar("T")

BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
    "U16": 16, "I16": 16, "F16": 16, "BF16": 16, "U32": 32, "I32": 32, "F32": 32, "U64": 64, "I64": 64, "F64": 64,
    "C64": 64,
}  # fmt: skip

_DTYPE = re.compile(r"[A-Z0-9_]{1,20}")


class Tensor(NamedTuple):
    """Tensor as its header declares it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int


def checkpoint_files(folder: Path) -> list[Path]:
    """List the checkpoint's files: those of the index, else `model.safetensors`, else all but `consolidated*`.

    Same choice as vLLM's filter_duplicate_safetensors_files.
    """
    index = folder / INDEX
    if index.exists():
        return _indexed(folder, read_json_object(index))
    whole = folder / "model.safetensors"
    if whole.exists():
        return [whole]
    found = sorted(folder.glob("*.safetensors"))
    found = [file for file in found if not file.name.startswith("consolidated")] or found
    if not found:
        raise unreadable_weights(f"{folder} holds no safetensors files")
    return _few(str(folder), found)


def read_safetensors_header(file: Path) -> Iterator[Tensor]:
    try:
        with open_regular(file) as opened:
            size = opened.seek(0, 2)
            opened.seek(0)
            length = int.from_bytes(opened.read(8), "little")
            if size < 8 or length > min(MAX_HEADER, size - 8):
                raise unreadable_weights(f"{file} is no safetensors file, or cut off: its header claims {length} bytes")
            text = opened.read(length)
    except OSError as error:
        raise unreadable_weights(f"{file} cannot be read: {error.strerror}") from None
    return _parsed(text, size - 8 - length, file)


def read_json_object(file: Path) -> dict[str, Any]:
    """Read a JSON object. Raises ProfileError: unreadable, too large, or no JSON object."""
    try:
        with open_regular(file) as opened:
            text = opened.read(MAX_JSON + 1)
    except OSError as error:
        raise unreadable_weights(f"{file} cannot be read: {error.strerror}") from None
    return parse_json_object(text, str(file))


def parse_json_object(text: bytes, what: str) -> dict[str, Any]:
    """Parse the JSON object in the text of `what`. Raises ProfileError: too large, or no JSON object."""
    if len(text) > MAX_JSON:
        raise unreadable_weights(f"{what} is larger than {MAX_JSON >> 20} MiB")
    return _object(text, what)


def index_files(index: Mapping[str, Any], what: str) -> list[str]:
    """List the files that an index names. Raises ProfileError: none, too many, or no plain names."""
    names = index.get("weight_map")
    if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
        raise unreadable_weights(f"{what} has no weight_map of names")
    wanted = sorted(set(names.values()))
    if odd := [name for name in wanted if Path(name).name != name]:
        raise unreadable_weights(f"{what} names {odd[0]!r}, which is no plain file name")
    return _few(what, wanted)


def unreadable_weights(message: str, hint: str | None = None) -> ProfileError:
    return ProfileError(f"{message}.", code="weights_unreadable", hint=hint)


def _indexed(folder: Path, index: dict[str, Any]) -> list[Path]:
    wanted = index_files(index, str(folder / INDEX))
    missing = [name for name in wanted if not (folder / name).exists()]
    if missing:
        raise unreadable_weights(
            f"{folder} is incomplete: {len(missing)} of {len(wanted)} files are not there, {missing[0]} first",
            "Download the model again; what is complete is kept.",
        )
    return [folder / name for name in wanted]


def _few(where: str, found: Sequence[T]) -> list[T]:
    if len(found) > MAX_FILES:
        raise unreadable_weights(f"{where} names {len(found)} weight files; more than {MAX_FILES} are not looked at")
    return list(found)


def _object(text: bytes, what: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise unreadable_weights(f"{what} does not hold valid JSON where it should") from None
    if not isinstance(found, dict):
        raise unreadable_weights(f"{what} holds no JSON object where it should")
    return found


def _parsed(text: bytes, data_bytes: int, file: Path) -> Iterator[Tensor]:
    for name, entry in _object(text, str(file)).items():
        if name == "__metadata__":
            continue
        tensor = _tensor(name, entry, data_bytes)
        if tensor is None:
            raise unreadable_weights(
                f"{file} has a malformed entry for {name[:80]!r}, or is cut off",
                "Download the file again if it was broken off.",
            )
        yield tensor


def _tensor(name: str, entry: object, data_bytes: int) -> Tensor | None:
    """Parse one tensor; None when the entry contradicts itself or lies outside of the file."""
    if not isinstance(entry, dict):
        return None
    dtype, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    if (
        not isinstance(dtype, str)
        or not _DTYPE.fullmatch(dtype)
        or not _counts(shape)
        or not _counts(offsets)
        or len(offsets) != 2
    ):
        return None
    begin, end = offsets
    if not begin <= end <= data_bytes:
        return None
    if dtype in BITS and prod(shape) * BITS[dtype] != (end - begin) * 8:
        return None
    return Tensor(name, dtype, tuple(shape), end - begin)


def _counts(value: object) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(item) is int and item >= 0 for item in value)
