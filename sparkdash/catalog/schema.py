"""Keys of a profile file, and how a variant inherits from its base.

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
"""Key of a variant: the sister to inherit from instead of the base; null: nothing."""

NOT_INHERITED = ("serves", "published", "cannot_run", "nearest")
"""Keys of a single profile: aliases, measured figures, and reasons why it cannot run."""

MERGED = ("args", "env", "env_by_node", "request", "request_set", "modes", "memory", "sim", "silence", "server")
"""Mappings that a variant changes key by key; null removes a key. Anything else it gives replaces the base's."""

_OWN_FIELDS = {"name", "source", "built_by"}
"""Fields of Profile that the loader sets, and no file."""

PROFILE_KEYS = tuple(key for key in Profile.model_fields if key not in _OWN_FIELDS)
"""Keys of a file and of each of its variants."""


class Section:
    """Profile within a file: the base, or a variant. Locates its keys in the file."""

    def __init__(self, document: Document, variant: str | None) -> None:
        self.document = document
        self.variant = variant
        self.name = str(document.data.get("profile")) + (f"/{variant}" if variant else "")

    def problem(
        self, path: KeyPath, message: str, hint: str | None = None, *, code: str = "wrong-value"
    ) -> ProfileProblem:
        """Make a ProfileProblem at the key: in the variant if it has the key, else in the base."""
        return self.document.problem(self._place(path), message, hint, code=code)

    def line(self) -> int:
        """Line where this profile begins."""
        return self.document.line(*(("variants", self.variant) if self.variant else ("profile",)))

    def given(self) -> dict[str, Any]:
        """Return all keys of this profile after inheritance, as Profile takes them."""
        result: dict[str, Any] = {}
        for name in reversed(lineage(self.document.data, self.variant)):
            result = {key: value for key, value in result.items() if key not in NOT_INHERITED}
            result = inherit(result, own_keys(self.document.data, name))
        result = {key: value for key, value in result.items() if value is not None}
        return result | {"name": self.name, "source": f"{self.document.file}:{self.line()}"}

    def _place(self, path: KeyPath) -> KeyPath:
        """Locate a key: in the nearest profile that has it, else at the start of the oldest in the lineage."""
        homes = [_home(name) for name in lineage(self.document.data, self.variant)]
        for known in (path, path[:1]):
            for home in homes:
                if path and self.document.has(*home, *known):
                    return home + path
        return homes[-1] + path if path else path


def _home(name: str | None) -> KeyPath:
    return ("variants", name) if name else ()


def sections(document: Document) -> Iterator[Section]:
    """Yield the base, then every variant that is a mapping or empty."""
    yield Section(document, None)
    variants = document.data.get("variants")
    for name, body in variants.items() if isinstance(variants, dict) else ():
        if isinstance(name, str) and (body is None or isinstance(body, dict)):
            yield Section(document, name)


def lineage(data: Mapping[str, Any], variant: str | None) -> list[str | None]:
    """List the profile and its ancestors, nearest first; None is the base. A wrong `extends` counts as none."""
    chain: list[str | None] = [variant]
    while (name := chain[-1]) is not None:
        given = data["variants"][name] or {}
        parent = given.get(EXTENDS)
        if EXTENDS in given and parent is None:
            break
        chain.append(parent if parent not in chain and is_variant(data, parent) else None)
    return chain


def is_variant(data: Mapping[str, Any], name: Any) -> bool:
    """Whether a variant of that name exists in a readable form."""
    return isinstance(name, str) and name in data["variants"] and isinstance(data["variants"][name], dict | None)


def own_keys(data: Mapping[str, Any], variant: str | None) -> dict[str, Any]:
    """Return the keys that the file gives for the base or the variant itself."""
    if variant is None:
        return {key: value for key, value in data.items() if key not in FAMILY_ONLY}
    return {key: value for key, value in (data["variants"][variant] or {}).items() if key != EXTENDS}


def inherit(base: Mapping[str, Any], variant: Mapping[str, Any]) -> dict[str, Any]:
    """Lay the variant's keys over the base's. Another image is built in another way, or not at all."""
    result = dict(base)
    if variant.get("image", base.get("image")) != base.get("image"):
        result.pop("build", None)
    for key, value in variant.items():
        old = base.get(key)
        if key in MERGED and isinstance(old, dict) and isinstance(value, dict):
            result[key] = _merge(old, value)
        elif key == "models" and isinstance(old, dict) and isinstance(value, dict):
            result[key] = {name: ref for name, ref in {**old, **value}.items() if ref is not None}
        else:
            result[key] = value
    return result


def validate_section(section: Section) -> Profile | list[ProfileProblem]:
    """Validate a section into a Profile, or every problem of its form."""
    given = section.given()
    hidden = _OWN_FIELDS & (set(section.document.data) | set(own_keys(section.document.data, section.variant)))
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
