"""Conversion of command-line words to values and names of a profile.

Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from sparkdash.catalog.importers.report import import_refused
from sparkdash.domain.profile import AUTO
from sparkdash.errors import ProfileError

_INT = re.compile(r"-?(0|[1-9]\d{0,14})")
_FLOAT = re.compile(r"-?\d{1,9}\.\d{1,9}")
_ALIAS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]*")
_LITERALS = {"true": True, "false": False, "null": None}
_MAX_DEPTH = 12
MAX_COMMAND = 600_000
"""Limit of a command in characters; above the limit of an input, as every literal script passes through unchanged."""
_HOME = re.compile(r"\A\$(?:HOME|\{HOME\}|\{env\.HOME\})(?=/)")
"""The owner's home as shells and llama-swap name it."""


def typed_value(word: str) -> Any:
    """Convert to a number, a JSON mapping or list, or keep the text where the value would print differently."""
    if _INT.fullmatch(word):
        return int(word)
    if _FLOAT.fullmatch(word):
        return float(word)
    if word[:1] in "{[" and word.count("{") + word.count("[") <= 200:
        value = _json_or_none(word)
        if value is None and word.startswith("{{"):  # escaped braces of a recipe's template
            value = _json_or_none(word.replace("{{", "{").replace("}}", "}"))
        return value if value is not None and is_shallow(value) else word
    return word


def dotted_value(word: str) -> Any:
    """Convert the value of a dotted flag such as `--kwargs.enable_thinking false`, which vLLM reads as JSON."""
    return _LITERALS[word] if word in _LITERALS else typed_value(word)


def _json_or_none(word: str) -> Any:
    try:
        return json.loads(word, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return None


def fill_variables(pattern: re.Pattern[str], text: str, values: Mapping[str, str]) -> str:
    """Replace every match whose first group is in `values`.

    Raises:
        ProfileError: the result outgrows any real command.
    """
    size = len(text)

    def put(hit: re.Match[str]) -> str:
        nonlocal size
        value = values.get(hit[1], hit[0])
        size += len(value)
        if size > MAX_COMMAND:
            raise too_long()
        return value

    return pattern.sub(put, text)


def too_long() -> ProfileError:
    """Make the error for text that outgrows any real command while its variables are filled in."""
    return import_refused(f"With its variables filled in, it is longer than {MAX_COMMAND} characters.")


def is_shallow(value: Any, depth: int = 0) -> bool:
    """Whether a value is nested no deeper than real ones."""
    if depth > _MAX_DEPTH:
        return False
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return all(is_shallow(item, depth + 1) for item in items)


def profile_name(text: str) -> str:
    """Return the nearest valid profile name; "" when nothing can be kept."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")[:80].rstrip("-._")
    return f"{name}-profile" if name == AUTO else name


def aliases(names: list[str], own: str) -> list[str]:
    """List the names that a profile may serve beside its own, without duplicates."""
    return [name for name in dict.fromkeys(names) if _ALIAS.fullmatch(name) and name not in (own, AUTO)]


def in_home(text: str) -> str:
    """Write a path below `$HOME` with the `~` that profiles have for it."""
    return _HOME.sub("~", text)


def model_ref(text: str) -> dict[str, str]:
    """Return a folder, or a repository on the hub. A path with a variable stays a visible path."""
    if text.startswith(("/", "~", "$", ".")) or "$" in text or text.endswith(".gguf"):
        return {"path": text}
    return {"hf": text}


def _no_constant(name: str) -> Any:
    raise ValueError(name)
