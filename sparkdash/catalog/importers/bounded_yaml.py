"""Foreign YAML, read with limits: size, nesting, aliases.

Owns: the limits. Aliases count as often as their values are repeated, so that a "billion laughs" file is refused.
"""

from __future__ import annotations

from typing import Any

import yaml
from yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent, ScalarEvent

from sparkdash.catalog.importers.report import import_refused
from sparkdash.catalog.yaml import yaml12

MAX_EVENTS = 20_000
MAX_DEPTH = 30
MAX_ALIASES = 100
MAX_SCALAR = 300_000
MAX_PLAIN = 20_000
"""Longest unquoted value in which numbers are looked for, in characters."""


def parse_bounded_yaml(text: str) -> dict[str, Any]:
    """Parse the document into plain values.

    Raises:
        ProfileError: the text is not YAML, not a mapping, or beyond the limits.
    """
    try:
        _measure(text)
        data, _ = yaml12.read_yaml(text)
    except (yaml12.NotYaml, yaml.YAMLError, UnicodeError) as error:
        raise import_refused(f"It is not valid YAML: {_why(error)}") from None
    if not isinstance(data, dict) or not all(isinstance(key, str) for key in data):
        raise import_refused("The YAML holds no mapping of words.")
    return data


def _why(error: Exception) -> str:
    """Return the parser's message without its name for the input."""
    if isinstance(error, yaml12.NotYaml) and error.duplicate:
        return f"the key {error.duplicate!r} is given twice. Keep one of the two."
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark:
        return f"line {error.problem_mark.line + 1}: {error.problem}."
    return " ".join(str(error).split())[:160]


class _Open:
    """Collection whose end has not come: anchor, size and height so far. An alias counts as its value."""

    __slots__ = ("anchor", "height", "size")

    def __init__(self, anchor: str | None) -> None:
        self.anchor = anchor
        self.size = 1
        self.height = 1

    def add(self, size: int, height: int) -> None:
        self.size += size
        self.height = max(self.height, height + 1)


def _measure(text: str) -> None:
    """Refuse text that is too large or too deep with every alias written out."""
    aliases = 0
    sizes: dict[str | None, tuple[int, int]] = {}
    opened = [_Open(None)]
    for count, event in enumerate(yaml.parse(text, Loader=yaml12.PARSER)):
        if isinstance(event, AliasEvent):
            aliases += 1
            opened[-1].add(*_of_alias(event.anchor, opened, sizes))
        elif isinstance(event, ScalarEvent):
            _check_scalar(event)
            opened[-1].add(1, 1)
            sizes[event.anchor] = (1, 1)
        elif isinstance(event, CollectionStartEvent):
            opened.append(_Open(event.anchor))
        elif isinstance(event, CollectionEndEvent):
            ended = opened.pop()
            sizes[ended.anchor] = (ended.size, ended.height)
            opened[-1].add(ended.size, ended.height)
        deep = len(opened) + opened[-1].height > MAX_DEPTH + 2
        if count > MAX_EVENTS or deep or aliases > MAX_ALIASES or opened[-1].size > MAX_EVENTS:
            raise import_refused("The YAML is larger, deeper or has more aliases than any recipe.")


def _of_alias(anchor: str, opened: list[_Open], sizes: dict[str | None, tuple[int, int]]) -> tuple[int, int]:
    if any(one.anchor == anchor for one in opened):
        raise import_refused(f"The YAML's value &{anchor} holds itself.")
    return sizes.get(anchor, (1, 1))


def _check_scalar(event: ScalarEvent) -> None:
    if len(event.value) > (MAX_SCALAR if event.style else MAX_PLAIN):
        raise import_refused("The YAML has a value longer than any recipe's.")
