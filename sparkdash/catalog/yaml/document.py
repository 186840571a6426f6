"""YAML file with its line marks.

Owns: reading the file, the locations of keys, and syntax problems. Must not know the meaning of keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparkdash.catalog.catalog import ProfileProblem
from sparkdash.catalog.yaml import yaml12
from sparkdash.catalog.yaml.profile_text import UnreadableFileError, read_profile_text
from sparkdash.catalog.yaml.yaml12 import Mark, NotYaml

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
        """Make a ProfileProblem at that key."""
        place = self._deepest(path)
        key = ".".join(map(str, path))
        return ProfileProblem(self.file, place.line, key, message, hint, column=place.column, code=code)

    def line(self, *path: str | int) -> int:
        """Return the line, from 1, of the deepest part of `path` that exists in the file."""
        return self._deepest(path).line

    def has(self, *path: str | int) -> bool:
        """Whether the key exists."""
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
