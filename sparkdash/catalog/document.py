"""One YAML file with its line marks.

Owns: parsing (YAML 1.2), the lines of keys, and syntax problems. Must not know: what the keys mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.constructor import DuplicateKeyError
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from sparkdash.catalog.catalog import Problem

KeyPath = tuple[str | int, ...]
"""Keys and indices from the top of a document down to a value."""


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed file: `data` in plain Python types, `node` with the marks."""

    file: str
    data: dict[str, Any]
    node: CommentedMap

    def line(self, *path: str | int) -> int:
        """The line, from 1, of the deepest part of `path` that exists in the file."""
        node: Any = self.node
        line = int(node.lc.line)
        for key in path:
            if not _has(node, key):
                break
            mark = (node.lc.data or {}).get(key)  # keys merged in with << have none of their own
            line = int(mark[0]) if mark else line
            node = node[key]
        return line + 1

    def has(self, *path: str | int) -> bool:
        """Is there such a key?"""
        node: Any = self.node
        for key in path:
            if not _has(node, key):
                return False
            node = node[key]
        return True


def parse(path: Path) -> Document | Problem:
    """The file, or the one reason why it cannot be read."""
    file = str(path)
    try:
        node = YAML(typ="rt").load(path.read_text(encoding="utf-8"))
    except OSError as error:
        return Problem(file, None, "", f"it cannot be read: {error.strerror}")
    except UnicodeDecodeError:
        return Problem(file, None, "", "it is not UTF-8 text")
    except DuplicateKeyError as error:
        return _duplicate(file, error)
    except MarkedYAMLError as error:
        return Problem(
            file, _line(error), "", f"it is not valid YAML: {_reason(error)}", "Check indentation and quotes."
        )
    except YAMLError as error:
        return Problem(file, None, "", f"it is not valid YAML: {error}")
    if not isinstance(node, CommentedMap):
        return Problem(file, 1, "", "it holds no mapping", "A profile file begins with `profile: NAME`.")
    return Document(file, _plain(node), node)


def _duplicate(file: str, error: DuplicateKeyError) -> Problem:
    key = str(error.problem).split('"')[1] if '"' in str(error.problem) else ""
    return Problem(file, _line(error), key, "it is given twice", "Keep one of the two.")


def _line(error: MarkedYAMLError) -> int | None:
    mark = error.problem_mark or error.context_mark
    return None if mark is None else int(mark.line) + 1


def _reason(error: MarkedYAMLError) -> str:
    return " ".join(str(error.problem or error.context).split())


def _has(node: Any, key: str | int) -> bool:
    if isinstance(node, CommentedMap):
        return key in node
    return isinstance(node, CommentedSeq) and isinstance(key, int) and 0 <= key < len(node)


def _plain(value: Any) -> Any:
    """Without ruamel's subclasses, which would print as themselves and keep the file's spelling of numbers."""
    if isinstance(value, Mapping):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_plain(item) for item in value]
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)
    return value
