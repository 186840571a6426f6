"""Rendering of a configuration in its file format.

Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from sparkdash.connect.recipe import FileFormat

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def render_content(content: Mapping[str, Any] | Sequence[Any], form: FileFormat) -> str:
    """Render the whole file, with a newline at its end."""
    match form:
        case FileFormat.JSON:
            return as_json(content)
        case FileFormat.YAML:
            return as_yaml(content)
        case FileFormat.TOML:
            if not isinstance(content, Mapping):
                raise TypeError("a TOML file is a table")
            return as_toml(content)


def as_json(content: object, indent: str | int = 2) -> str:
    """JSON as editors write it."""
    return json.dumps(content, indent=indent, ensure_ascii=False) + "\n"


def as_yaml(content: object) -> str:
    """YAML in blocks, in the given order."""
    text: str = yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=1000)
    return text


def as_toml(content: Mapping[str, Any], table: tuple[str, ...] = ()) -> str:
    """Render TOML of strings, numbers, booleans and tables. Values precede tables, as TOML requires."""
    values = {key: value for key, value in content.items() if not isinstance(value, Mapping)}
    lines = [f"[{'.'.join(map(_key, table))}]"] if table and values else []
    lines += [f"{_key(key)} = {json.dumps(value, ensure_ascii=False)}" for key, value in values.items()]
    inner = [as_toml(value, (*table, key)) for key, value in content.items() if isinstance(value, Mapping)]
    return "\n".join(("\n".join(lines) + "\n" if lines else "", *inner) if lines else inner)


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else json.dumps(key, ensure_ascii=False)
