"""What a profile file may say, and how a variant grows out of its base.

Owns: the keys, inheritance, and the problems of form (unknown key, wrong type). Must not know: files, other profiles.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from sparkdash.catalog.catalog import ProfileProblem
from sparkdash.catalog.complaints import complaints, similar
from sparkdash.catalog.yaml.document import Document, KeyPath
from sparkdash.domain.profile import Profile

FAMILY_ONLY = ("profile", "variants")
"""Keys of the file that no variant has."""

EXTENDS = "extends"
"""A variant's own key: the sister it grows out of instead of the base; null: out of nothing."""

NOT_INHERITED = ("serves", "published", "cannot_run", "nearest")
"""An alias is one profile's, a figure was measured on one, and what bars one need not bar another."""

MERGED = ("args", "env", "request", "request_set", "modes", "memory", "sim", "silence")
"""Mappings that a variant changes key by key; null removes a key. Anything else it gives replaces the base's."""

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

    def problem(
        self, path: KeyPath, message: str, hint: str | None = None, *, code: str = "wrong-value"
    ) -> ProfileProblem:
        """A Problem at the key's own place: the variant's if it gives the key, else the base's."""
        return self.document.problem(self._place(path), message, hint, code=code)

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
        if isinstance(name, str) and (body is None or isinstance(body, dict)):
            yield Section(document, name)


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


def validate(section: Section) -> Profile | list[ProfileProblem]:
    """The profile, or everything that is wrong with its form."""
    given = section.given()
    hidden = _OWN_FIELDS & (set(section.document.data) | set(body(section.document.data, section.variant)))
    known = (*FAMILY_ONLY, EXTENDS, *PROFILE_KEYS)
    problems = [
        section.problem((key,), "unknown key", similar(key, PROFILE_KEYS), code="unknown-key") for key in sorted(hidden)
    ]
    try:
        profile = Profile.model_validate(given)
    except ValidationError as error:
        told = complaints(error, top=known)
        return problems + [section.problem(one.path, one.message, one.hint, code=one.code) for one in told]
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
