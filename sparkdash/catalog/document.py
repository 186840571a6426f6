"""Profile file as a YAML document: read without ever waiting for it, with the line of every key."""

import errno
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparkdash.catalog import yaml12
from sparkdash.catalog.catalog import ProfileProblem
from sparkdash.catalog.yaml12 import Mark, NotYaml
from sparkdash.paths import read_small_text

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
        data, mark = yaml12.read_yaml(read_small_text(path))
    except OSError as error:
        why = error.strerror if error.errno in (errno.EINVAL, errno.EFBIG) else f"it cannot be read: {error.strerror}"
        return ProfileProblem(file, None, "", why or "it cannot be read", code="unreadable")
    except UnicodeDecodeError:
        return ProfileProblem(file, None, "", "it is not UTF-8 text", code="unreadable")
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
        hint = "Keep one of the two."
        return ProfileProblem(file, key=key, message="it is given twice", hint=hint, code="duplicate-key", **where)
    message, hint = f"it is not valid YAML: {error}", "Check indentation and quotes."
    return ProfileProblem(file, key="", message=message, hint=hint, code="not-yaml", **where)
