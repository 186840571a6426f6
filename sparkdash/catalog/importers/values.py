"""How a word of a command line becomes a value of a profile, and a name one that the catalog takes."""

from __future__ import annotations

import json
import re
from typing import Any

from sparkdash.domain.profile import AUTO

_INT = re.compile(r"-?(0|[1-9]\d{0,14})")
_FLOAT = re.compile(r"-?\d{1,9}\.\d{1,9}")
_ALIAS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]*")
_SECRET = re.compile(r"(?:^|_)(?:TOKEN|API_?KEY|KEY|SECRET|PASSWORD|PASSWD|CREDENTIALS?)(?:_|$)", re.IGNORECASE)
_MAX_DEPTH = 12


def typed(word: str) -> Any:
    """A number, a JSON mapping or list, or the text itself. What would print differently stays text."""
    if _INT.fullmatch(word):
        return int(word)
    if _FLOAT.fullmatch(word):
        return float(word)
    if word[:1] in "{[" and word.count("{") + word.count("[") <= 200:
        try:
            value = json.loads(word, parse_constant=_no_constant)
        except (ValueError, RecursionError):
            return word
        return value if shallow(value) else word
    return word


def shallow(value: Any, depth: int = 0) -> bool:
    """Is it nested no deeper than anything real is?"""
    if depth > _MAX_DEPTH:
        return False
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return all(shallow(item, depth + 1) for item in items)


def profile_name(text: str) -> str:
    """The nearest name that a profile may have; "" when nothing of it can be kept."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")[:80].rstrip("-._")
    return f"{name}-profile" if name == AUTO else name


def aliases(names: list[str], own: str) -> list[str]:
    """Those that a profile may serve beside its own name, each once."""
    return [name for name in dict.fromkeys(names) if _ALIAS.fullmatch(name) and name not in (own, AUTO)]


def secret(name: str) -> bool:
    """Does a variable or flag of that name hold what must not be in a file?"""
    return bool(_SECRET.search(name))


def model_ref(text: str) -> dict[str, str]:
    """A folder, or a repository on the hub. A path with a variable stays a path, and visible."""
    if text.startswith(("/", "~", "$", ".")) or "$" in text or text.endswith(".gguf"):
        return {"path": text}
    return {"hf": text}


def _no_constant(name: str) -> Any:
    raise ValueError(name)
