"""Profile file as a YAML document: read without ever waiting for it, with the line of every key."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparkdash.catalog import yaml12
from sparkdash.catalog.catalog import ProfileProblem
from sparkdash.catalog.yaml12 import Mark, NotYaml

MAX_BYTES = 1_000_000
"""Limit of a profile file. The largest shipped one has 20 KB; 26 MB of YAML took 19 s to read."""
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class UnreadableFileError(Exception):
    """Reason why a file is not read, as the rest of a sentence that begins with the file."""


def read_profile_text(path: Path) -> str:
    """Read the whole file. Raises UnreadableFileError: no ordinary file, too large, not UTF-8, cannot be opened."""
    try:
        _refuse_special(path.stat().st_mode)  # before it is opened: a device may act on that
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            _refuse_special(os.fstat(file.fileno()).st_mode)
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UnreadableFileError(f"it cannot be read: {error.strerror}") from None
    if len(data) > MAX_BYTES:
        raise UnreadableFileError(f"it is larger than {MAX_BYTES // 1_000_000} MB, which no profile file is")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise UnreadableFileError("it is not UTF-8 text") from None


def _refuse_special(mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise UnreadableFileError(f"it is {_KINDS.get(stat.S_IFMT(mode), 'no ordinary file')}, and not a file")


KeyPath = tuple[str | int, ...]
"""Keys and indices from the top of a document down to a value."""


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed file: `data` in plain Python types, `mark` with the place of each part."""

    file: str
    data: dict[str, Any]
    mark: Mark

    def problem(
        self, path: KeyPath, message: str, hint: str | None = None, *, code: str = "wrong-value"
    ) -> ProfileProblem:
        place = self._deepest(path)
        key = ".".join(map(str, path))
        return ProfileProblem(self.file, place.line, key, message, hint, column=place.column, code=code)

    def line(self, *path: str | int) -> int:
        """Return the line, from 1, of the deepest part of `path` that exists in the file."""
        return self._deepest(path).line

    def has(self, *path: str | int) -> bool:
        mark = self.mark
        for key in path:
            if key not in mark.inner:
                return False
            mark = mark.inner[key]
        return True

    def _deepest(self, path: KeyPath) -> Mark:
        mark = self.mark
        for key in path:
            if key not in mark.inner:
                break
            mark = mark.inner[key]
        return mark


def read_document(path: Path) -> Document | ProfileProblem:
    """Read the file, or the one reason why it cannot be read."""
    file = str(path)
    try:
        data, mark = yaml12.read_yaml(read_profile_text(path))
    except UnreadableFileError as error:
        return ProfileProblem(file, None, "", str(error), code="unreadable")
    except NotYaml as error:
        return _syntax(file, error)
    if not isinstance(data, dict):
        hint = "A profile file begins with `profile: NAME`."
        return ProfileProblem(file, 1, "", "it holds no mapping", hint, column=1, code="not-yaml")
    return Document(file, data, mark)


def walk_strings(path: KeyPath, value: Any) -> Iterator[tuple[KeyPath, str]]:
    """Walk the strings in nested lists and mappings below `path`, each with its own path."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from walk_strings((*path, key), item)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from walk_strings((*path, index), item)


def _syntax(file: str, error: NotYaml) -> ProfileProblem:
    where = {"line": error.line, "column": error.column}
    if (key := error.duplicate) is not None:
        return ProfileProblem(
            file, key=key, message="it is given twice", hint="Keep one of the two.", code="duplicate-key", **where
        )
    message, hint = f"it is not valid YAML: {error}", "Check indentation and quotes."
    return ProfileProblem(file, key="", message=message, hint=hint, code="not-yaml", **where)
