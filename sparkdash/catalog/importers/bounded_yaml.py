"""Foreign YAML, read with limits: size, nesting, aliases.

Owns: the limits. A "billion laughs" file needs an alias inside of an anchored node; no real file has one.
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


def _measure(text: str) -> None:
    aliases = 0
    anchored: list[bool] = []
    for count, event in enumerate(yaml.parse(text, Loader=yaml12.PARSER)):
        _check_event(event, anchored)
        aliases += isinstance(event, AliasEvent)
        if isinstance(event, CollectionStartEvent):
            anchored.append(event.anchor is not None)
        elif isinstance(event, CollectionEndEvent):
            anchored.pop()
        if count > MAX_EVENTS or len(anchored) > MAX_DEPTH or aliases > MAX_ALIASES:
            raise import_refused("The YAML is larger, deeper or has more aliases than any recipe.")


def _check_event(event: Any, anchored: list[bool]) -> None:
    """Refuse an alias inside of an anchored value, and a value that is too long."""
    if isinstance(event, AliasEvent) and any(anchored):
        raise import_refused("The YAML has an alias inside of an anchored value; such files can grow without end.")
    if isinstance(event, ScalarEvent) and len(event.value) > (MAX_SCALAR if event.style else MAX_PLAIN):
        raise import_refused("The YAML has a value longer than any recipe's.")
