"""Validation errors of a profile file, in words for its author.

Owns: pydantic's error types and the words for each. Must not know: files, lines, inheritance.
Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from sparkdash.catalog.catalog import nearest
from sparkdash.catalog.yaml.document import KeyPath
from sparkdash.domain.profile import EngineKind, MemoryNeed, MendName, ModelRef, Mount, Published, SimSpec, SimSpeed
from sparkdash.domain.server import LogFailure, LogStage, ServerKind, ServerMetrics, ServerSpec
from sparkdash.domain.task import ServerRoute

_PARTS: Mapping[KeyPath, type[BaseModel]] = {
    ("models", "*"): ModelRef,
    ("memory",): MemoryNeed,
    ("published", "*"): Published,
    ("mounts", "*"): Mount,
    ("sim",): SimSpec,
    ("sim", "speeds", "*"): SimSpeed,
    ("server",): ServerSpec,
    ("server", "metrics"): ServerMetrics,
    ("server", "log", "*"): LogStage,
    ("server", "failures", "*"): LogFailure,
}
_SHAPES: Mapping[type[BaseModel], str] = {
    ModelRef: "Write {path: /folder} or {hf: owner/name}, with `revision` beside hf to pin it.",
    Mount: "Write {source: /on/this/box, target: /in/the/container}.",
}
_ENUMS: Mapping[KeyPath, type[StrEnum]] = {
    ("engine",): EngineKind,
    ("mends_off", "*"): MendName,
    ("server", "kind"): ServerKind,
    ("server", "routes", "*"): ServerRoute,
    ("server", "ready_by"): ServerRoute,
}
_WANTED = {
    "model_type": "a mapping", "dict_type": "a mapping", "list_type": "a list", "tuple_type": "a list",
    "bool_type": "true or false", "bool_parsing": "true or false",
    "int_type": "a whole number", "int_parsing": "a whole number", "int_from_float": "a whole number",
    "float_type": "a number", "float_parsing": "a number", "finite_number": "a number",
    "string_type": "text", "string_too_short": "some text", "string_pattern_mismatch": "of the form {pattern}",
    "greater_than": "more than {gt}", "greater_than_equal": "at least {ge}", "less_than_equal": "at most {le}",
}  # fmt: skip
"""Words after "must be", by pydantic's name of the error."""
_UNION = {"bool", "int", "float", "str"}
_KEY = "[key]"


class Complaint(NamedTuple):
    """A wrong value, with its path and words."""

    path: KeyPath
    message: str
    hint: str | None = None
    code: str = "wrong-value"


def complaints(error: ValidationError, *, top: tuple[str, ...]) -> list[Complaint]:
    """Word each error once, at its place; `top` are the keys that a profile itself may have."""
    found = list(dict.fromkeys(_complaint(item, top) for item in error.errors()))
    # one member of a union says what is wrong inside, the others only that the whole is not theirs
    return [one for one in found if not any(_inside(other.path, one.path) for other in found)]


def _inside(path: KeyPath, outer: KeyPath) -> bool:
    return len(path) > len(outer) and path[: len(outer)] == outer


def _complaint(item: ErrorDetails, top: tuple[str, ...]) -> Complaint:
    path, kind, found = tuple(item["loc"]), item["type"], item["input"]
    if kind == "extra_forbidden":
        model = _part(path[:-1])
        known = tuple(model.model_fields) if model else top
        return Complaint(path, "unknown key", similar(str(path[-1]), known), "unknown-key")
    if kind == "missing":
        return Complaint(path[:-1], f"{path[-1]!r} is missing", code="missing")
    if kind == "value_error":
        return Complaint(path, str(item["ctx"]["error"]))
    if kind == "enum":
        return _choice(path, found)
    if path[-1] == _KEY:
        text, hint = f"the key {found!r} must be text", f'Write it in quotes: "{found}".'
        return Complaint(_without_unions(path[:-1]), text, hint)
    if (real := _without_unions(path)) != path:
        return Complaint(real, f"cannot have the value {_short(found)}", "Write it in quotes.")
    return Complaint(path, f"{_wanted(item)}, not {_short(found)}", _hint(path, kind, found))


def similar(key: str, known: tuple[str, ...]) -> str:
    """Return the hint for an unknown key."""
    known = tuple(one for one in known if one != key)  # known, and not here
    close = nearest(key.replace("-", "_"), known)
    return f"Did you mean {close[0]!r}?" if close else f"Known here: {', '.join(known)}."


def _choice(path: KeyPath, found: Any) -> Complaint:
    choices = tuple(member.value for member in _ENUMS[tuple("*" if isinstance(key, int) else key for key in path)])
    close = nearest(str(found), choices)
    hint = f"Did you mean {close[0]!r}?" if close else None
    return Complaint(path, f"must be one of {', '.join(choices)}, not {_short(found)}", hint)


def _wanted(item: ErrorDetails) -> str:
    if (words := _WANTED.get(item["type"])) is None:
        return item["msg"][:1].lower() + item["msg"][1:]
    return f"must be {words.format_map(item.get('ctx') or {})}"


def _hint(path: KeyPath, kind: str, found: Any) -> str | None:
    if kind == "string_type" and isinstance(found, int | float):
        return f'Write it in quotes: "{str(found).lower()}".'
    if kind == "model_type" and (model := _part(path)):
        return _SHAPES.get(model) or f"Its keys: {', '.join(model.model_fields)}."
    return None


def _part(path: KeyPath) -> type[BaseModel] | None:
    for pattern, model in _PARTS.items():
        if len(pattern) == len(path) and all(want in ("*", got) for want, got in zip(pattern, path, strict=True)):
            return model
    return None


def _without_unions(path: KeyPath) -> KeyPath:
    """Drop the steps that pydantic takes into the members of a union."""
    return tuple(part for part in path if not (part in _UNION or str(part).startswith(("list[", "dict["))))


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:59] + "…"
