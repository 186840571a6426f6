"""Changes of single values in a TOML text; comments, order and layout of everything else stay.

Owns: finding the statement of a key, and the proof that nothing else changed. Must not know what a key means.
Rule: the new text is parsed, and must hold exactly the old content with this one change; otherwise it is refused.

Pure.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Sequence
from copy import deepcopy
from typing import Any, NamedTuple

from sparkdash.errors import ProfileError

_BARE = re.compile(r"[A-Za-z0-9_-]+")


class _Statement(NamedTuple):
    """Lines `[start, end)` that hold a table's header (`key` None) or one `key = value`."""

    start: int
    end: int
    table: tuple[str, ...] | None
    """Path of the table; None within an array of tables."""
    key: str | None


def set_toml_value(text: str, path: Sequence[str], value: str | None) -> str:
    """Return `text` with the value at `path` replaced, added, or removed (`value` None). `value` is TOML.

    Raises:
        ProfileError: code `toml_layout`, when the key is written in a way that this module does not change.
    """
    before = tomllib.loads(text)
    wanted = _changed(before, path, tomllib.loads(f"x = {value}")["x"] if value is not None else None)
    if wanted == before:
        return text
    lines = text.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    try:
        candidate = _edited(lines, tuple(path), value)
        if tomllib.loads(candidate) == wanted:
            return candidate
    except ValueError:
        pass
    raise ProfileError(
        f"{'.'.join(path)} is written in a way that cannot be changed without losing what stands around it.",
        code="toml_layout",
        hint="Change the value in the file itself.",
    )


def toml_key(path: Sequence[str]) -> str:
    """Format a dotted key, quoting the parts that need it."""
    return ".".join(part if _BARE.fullmatch(part) else json.dumps(part, ensure_ascii=False) for part in path)


def _changed(before: dict[str, Any], path: Sequence[str], value: Any) -> dict[str, Any]:
    wanted = deepcopy(before)
    *tables, key = path
    inner = wanted
    for table in tables:
        if value is None and table not in inner:
            return wanted
        inner = inner.setdefault(table, {})
    if value is None:
        inner.pop(key, None)
    else:
        inner[key] = value
    return wanted


def _edited(lines: list[str], path: tuple[str, ...], value: str | None) -> str:
    *above, key = path
    table = tuple(above)
    own = [one for one in _statements(lines) if one.table == table]
    at = next((one for one in own if one.key == key), None)
    if at is not None:
        return _replaced(lines, at, key, value)
    new = _statement(key, value or "", "")
    return _added(lines, table, own, new)


def _added(lines: list[str], table: tuple[str, ...], own: Sequence[_Statement], new: str) -> str:
    """Put a new statement behind those of its table (`own`), or into a table of its own at the end."""
    if table and not own:
        return "".join([*lines, "\n" if lines else "", f"[{toml_key(table)}]\n", new])
    place = own[-1].end if own else _head_end(lines)
    return "".join([*lines[:place], new, *lines[place:]])


def _replaced(lines: list[str], at: _Statement, key: str, value: str | None) -> str:
    comment = _comment("".join(lines[at.start : at.end]))
    new = [] if value is None else [_statement(key, value, comment)]
    return "".join([*lines[: at.start], *new, *lines[at.end :]])


def _statement(key: str, value: str, comment: str) -> str:
    return f"{toml_key([key])} = {value}{f'  {comment}' if comment else ''}\n"


def _statements(lines: Sequence[str]) -> list[_Statement]:
    """Split the lines into statements. Raises ValueError for text that is no TOML."""
    found: list[_Statement] = []
    table: tuple[str, ...] | None = ()
    start = 0
    while start < len(lines):
        bare = lines[start].strip()
        if not bare or bare.startswith("#"):
            start += 1
            continue
        if bare.startswith("["):
            table = None if bare.startswith("[[") else _table_path(lines[start])
            found.append(_Statement(start, start + 1, table, None))
            start += 1
            continue
        end, held = _whole(lines, start)
        found.append(_Statement(start, end, table, next(iter(held))))
        start = end
    return found


def _table_path(header: str) -> tuple[str, ...]:
    path: list[str] = []
    inner: Any = tomllib.loads(header)
    while isinstance(inner, dict) and inner:
        name = next(iter(inner))
        path.append(name)
        inner = inner[name]
    return tuple(path)


def _whole(lines: Sequence[str], start: int) -> tuple[int, dict[str, Any]]:
    """Return the end of the statement that begins at `start`, which may have several lines, and its content."""
    for end in range(start + 1, len(lines) + 1):
        try:
            return end, tomllib.loads("".join(lines[start:end]))
        except tomllib.TOMLDecodeError:
            continue
    raise ValueError("a statement has no end")


def _comment(statement: str) -> str:
    """Return the comment behind the value of a statement of one line; "" without one."""
    if statement.count("\n") > 1:
        if "#" in statement:
            raise ValueError("its comments would be lost")
        return ""
    held = tomllib.loads(statement)
    for at in (place for place, letter in enumerate(statement) if letter == "#"):
        try:
            if tomllib.loads(statement[:at]) == held:
                return statement[at:].strip()
        except tomllib.TOMLDecodeError:
            continue
    return ""


def _head_end(lines: Sequence[str]) -> int:
    """Return the line behind the comment at the head of a file, where that comment stands alone."""
    end = 0
    while end < len(lines) and lines[end].lstrip().startswith("#"):
        end += 1
    return end if end == len(lines) or not lines[end].strip() else 0
