"""Profile as YAML with the reason of each key above it.

Owns: the look of a proposed file. Must not know who proposed it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from textwrap import indent, wrap
from typing import Any

from sparkdash.catalog.yaml import yaml_writer

COLUMNS = 110
STEP = "  "

Reasons = Mapping[tuple[str, ...], str]
"""Reasons by the path of their key; every key on the way is a plain word."""


def annotated_yaml(profile: Mapping[str, Any], reasons: Reasons, head: Iterable[str]) -> str:
    """Render the file: `head` as comments, then the profile."""
    return "".join(f"# {line}".rstrip() + "\n" for line in head) + "".join(_keys(profile, reasons, ()))


def _keys(node: Mapping[str, Any], reasons: Reasons, path: tuple[str, ...]) -> Iterator[str]:
    for key, value in node.items():
        here = (*path, key)
        for line in wrap(reasons.get(here, ""), COLUMNS - 2 - len(STEP * len(path)), break_long_words=False):
            yield f"# {line}\n"
        if any(other[: len(here)] == here != other for other in reasons):
            yield f"{key}:\n" + indent("".join(_keys(value, reasons, here)), STEP)
        else:
            yield yaml_writer.dump({key: value})
