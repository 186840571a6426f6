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

EXTENDS = "extends"
"""A variant's own key: the sister it grows out of instead of the base; null: out of nothing."""

NOT_INHERITED = ("serves", "published", "cannot_run", "nearest")
"""An alias is one profile's, a figure was measured on one, and what bars one need not bar another."""

MERGED = ("args", "env", "request", "memory", "sim", "silence")
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
        result: dict[str, Any] = {}
        for name in reversed(lineage(self.document.data, self.variant)):
            result = {key: value for key, value in result.items() if key not in NOT_INHERITED}
            result = inherit(result, body(self.document.data, name))
        result = {key: value for key, value in result.items() if value is not None}
        return result | {"name": self.name, "source": f"{self.document.file}:{self.line()}"}

    def _place(self, path: KeyPath) -> KeyPath:
        """Where the key stands: with the nearest that gives it, else where the oldest of the lineage begins."""
        homes = [_home(name) for name in lineage(self.document.data, self.variant)]
        for known in (path, path[:1]):
            for home in homes:
                if path and self.document.has(*home, *known):
                    return home + path
        return homes[-1] + path if path else path


def _home(name: str | None) -> KeyPath:
    return ("variants", name) if name else ()


def sections(document: Document) -> Iterator[Section]:
    """The base, then every variant that is a mapping or empty."""
    yield Section(document, None)
    variants = document.data.get("variants")
    for name, body in variants.items() if isinstance(variants, dict) else ():
        if body is None or isinstance(body, dict):
            yield Section(document, str(name))


def lineage(data: Mapping[str, Any], variant: str | None) -> list[str | None]:
    """The profile and those it grows out of, nearest first; None is the base. A wrong `extends` counts as none."""
    chain: list[str | None] = [variant]
    while (name := chain[-1]) is not None:
        given = data["variants"][name] or {}
        parent = given.get(EXTENDS)
        if EXTENDS in given and parent is None:
            break
        chain.append(parent if parent not in chain and is_variant(data, parent) else None)
    return chain


def is_variant(data: Mapping[str, Any], name: Any) -> bool:
    """Is there a variant of that name, in a form that can be read?"""
    return isinstance(name, str) and name in data["variants"] and isinstance(data["variants"][name], dict | None)


def body(data: Mapping[str, Any], variant: str | None) -> dict[str, Any]:
    """What the file itself says of one profile: the base's keys, or the variant's."""
    if variant is None:
        return {key: value for key, value in data.items() if key not in FAMILY_ONLY}
    return {key: value for key, value in (data["variants"][variant] or {}).items() if key != EXTENDS}


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
    hidden = _OWN_FIELDS & (set(section.document.data) | set(body(section.document.data, section.variant)))
    problems = [section.problem((key,), "unknown key", _similar(key, PROFILE_KEYS)) for key in sorted(hidden)]
    try:
        profile = Profile.model_validate(given)
    except ValidationError as error:
        return problems + [_explain(section, item) for item in error.errors()]
    return problems or profile


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
    return (*FAMILY_ONLY, EXTENDS, *PROFILE_KEYS)


def _similar(key: str, known: tuple[str, ...]) -> str:
    close = nearest(key.replace("-", "_"), known)
    return f"Did you mean {close[0]!r}?" if close else f"Known here: {', '.join(known)}."
