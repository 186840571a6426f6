"""What a profile file may say, and how a variant grows out of its base.

Owns: the keys, inheritance, and the problems of form (unknown key, wrong type). Must not know: files, other profiles.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from sparkdash.catalog.catalog import Problem, nearest
from sparkdash.catalog.document import Document, KeyPath
from sparkdash.domain.profile import MemoryNeed, ModelRef, Mount, Profile, Published, SimSpec, SimSpeed

FAMILY_ONLY = ("profile", "variants")
"""Keys of the file that no variant has."""

NOT_INHERITED = ("serves", "published", "cannot_run", "nearest")
"""An alias is one profile's, a figure was measured on one, and what bars one need not bar another."""

MERGED = ("args", "env", "request", "memory", "sim")
"""Mappings that a variant changes key by key; null removes a key. Anything else it gives replaces the base's."""

_KEYS: dict[KeyPath, type[BaseModel]] = {
    ("models", "*"): ModelRef,
    ("memory",): MemoryNeed,
    ("published", "*"): Published,
    ("mounts", "*"): Mount,
    ("sim",): SimSpec,
    ("sim", "speeds", "*"): SimSpeed,
}
_OWN_FIELDS = {"name", "source"}
"""Of Profile, but not of a file: the loader sets them."""

PROFILE_KEYS = tuple(key for key in Profile.model_fields if key not in _OWN_FIELDS)
"""What a file and each of its variants may give."""


class Section:
    """One profile within a file: the base, or a variant. Knows where in the file each of its keys stands."""

    def __init__(self, document: Document, variant: str | None) -> None:
        self.document = document
        self.variant = variant
        self.name = str(document.data.get("profile")) + (f"/{variant}" if variant else "")

    def problem(self, path: KeyPath, message: str, hint: str | None = None) -> Problem:
        """A Problem at the key's own line: the variant's if it gives the key, else the base's."""
        place = self._place(path)
        return Problem(self.document.file, self.document.line(*place), ".".join(map(str, place)), message, hint)

    def line(self) -> int:
        """Where this profile begins."""
        return self.document.line(*(("variants", self.variant) if self.variant else ("profile",)))

    def given(self) -> dict[str, Any]:
        """Everything that holds for this profile, inheritance applied, as Profile wants it."""
        base = {key: value for key, value in self.document.data.items() if key not in FAMILY_ONLY}
        if self.variant:
            base = {key: value for key, value in base.items() if key not in NOT_INHERITED}
            base = inherit(base, self.document.data["variants"][self.variant] or {})
        base = {key: value for key, value in base.items() if value is not None}
        return base | {"name": self.name, "source": f"{self.document.file}:{self.line()}"}

    def _place(self, path: KeyPath) -> KeyPath:
        own: KeyPath = ("variants", self.variant or "")
        return own + path if path and self.variant and self.document.has(*own, path[0]) else path


def sections(document: Document) -> Iterator[Section]:
    """The base, then every variant that is a mapping or empty."""
    yield Section(document, None)
    variants = document.data.get("variants")
    for name, body in variants.items() if isinstance(variants, dict) else ():
        if body is None or isinstance(body, dict):
            yield Section(document, str(name))


def inherit(base: Mapping[str, Any], variant: Mapping[str, Any]) -> dict[str, Any]:
    """The base's keys with the variant's over them."""
    result = dict(base)
    for key, value in variant.items():
        old = base.get(key)
        if key in MERGED and isinstance(old, dict) and isinstance(value, dict):
            result[key] = _merge(old, value)
        elif key == "models" and isinstance(old, dict) and isinstance(value, dict):
            result[key] = {name: ref for name, ref in {**old, **value}.items() if ref is not None}
        else:
            result[key] = value
    return result


def validate(section: Section) -> Profile | list[Problem]:
    """The profile, or everything that is wrong with its form."""
    given = section.given()
    hidden = _OWN_FIELDS & (set(section.document.data) | set(_body(section)))
    problems = [section.problem((key,), "unknown key", _similar(key, PROFILE_KEYS)) for key in sorted(hidden)]
    try:
        profile = Profile.model_validate(given)
    except ValidationError as error:
        return problems + [_explain(section, item) for item in error.errors()]
    return problems or profile


def _body(section: Section) -> dict[str, Any]:
    return (section.document.data["variants"][section.variant] or {}) if section.variant else {}


def _merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for key, value in over.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict) and isinstance(result.get(key), dict):
            result[key] = _merge(result[key], value)
        else:
            result[key] = value
    return result


def _explain(section: Section, item: ErrorDetails) -> Problem:
    path: KeyPath = tuple(item["loc"])
    if item["type"] == "extra_forbidden":
        return section.problem(path, "unknown key", _similar(str(path[-1]), _known(path[:-1])))
    if item["type"] == "missing":
        return section.problem(path[:-1], f"{path[-1]!r} is missing")
    if item["type"] == "string_type" and isinstance(item["input"], int | float):
        return section.problem(path, f"must be text, not {item['input']!r}", f'Write it in quotes: "{item["input"]}".')
    if item["type"] == "value_error":
        return section.problem(path, str(item["ctx"]["error"]))
    real = _without_unions(path)
    if real != path:
        return section.problem(real, f"cannot have the value {_short(item['input'])}", "Write it in quotes.")
    message = item["msg"][:1].lower() + item["msg"][1:]
    return section.problem(path, f"{message}, not {_short(item['input'])}")


def _without_unions(path: KeyPath) -> KeyPath:
    """Without the steps that pydantic takes into the members of a union."""
    unions = {"bool", "int", "float", "str"}
    return tuple(part for part in path if not (part in unions or str(part).startswith(("list[", "dict["))))


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:59] + "…"


def _known(path: KeyPath) -> tuple[str, ...]:
    for pattern, model in _KEYS.items():
        if len(pattern) == len(path) and all(want in ("*", got) for want, got in zip(pattern, path, strict=True)):
            return tuple(model.model_fields)
    return (*FAMILY_ONLY, *PROFILE_KEYS)


def _similar(key: str, known: tuple[str, ...]) -> str:
    close = nearest(key.replace("-", "_"), known)
    return f"Did you mean {close[0]!r}?" if close else f"Known here: {', '.join(known)}."
