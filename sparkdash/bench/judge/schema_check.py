"""Check of a JSON value against a JSON Schema, as far as requests of clients use them.

Owns: the keywords that are checked: those of draft 2020-12 that constrain values, and `definitions`. Must not know:
requests, tools.
Rule: an unknown keyword constrains nothing, `format` and `unevaluated…` included. A reference beyond the schema itself
is not followed. A malformed schema, or one that refers to itself without end, constrains nothing.
Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

STEPS = 100_000
"""Schemas that one check visits at most; a reference to itself ends here or at Python's own limit."""
Json = Mapping[str, Any]


def matches_schema(value: Any, schema: Any) -> bool:
    """Whether the value satisfies the schema."""
    try:
        return _Checker(schema).is_valid(value, schema)
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
        return True


@dataclass(slots=True)
class _Checker:
    """Checks against parts of one schema."""

    root: Any
    visited: int = 0

    def is_valid(self, value: Any, schema: Any) -> bool:
        if not isinstance(schema, Mapping):
            return schema is not False
        self.visited += 1
        if self.visited > STEPS:
            raise RecursionError
        plain = all(check(value, schema[word]) for word, check in _PLAIN.items() if word in schema)
        return (
            plain
            and self._is_reference_valid(value, schema)
            and self._are_branches_valid(value, schema)
            and (not isinstance(value, Mapping) or self._is_object_valid(value, schema))
            and (not isinstance(value, list) or self._is_array_valid(value, schema))
        )

    def _is_reference_valid(self, value: Any, schema: Json) -> bool:
        target = self._target(schema.get("$ref"))
        return target is None or self.is_valid(value, target)

    def _target(self, reference: Any) -> Any:
        """Return the part of the schema that a local reference names; None for any other."""
        if not isinstance(reference, str) or not reference.startswith("#"):
            return None
        found = self.root
        for step in reference[1:].split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            if isinstance(found, list) and key.isdigit() and int(key) < len(found):
                found = found[int(key)]
            else:
                found = found.get(key) if isinstance(found, Mapping) else None
        return found

    def _are_branches_valid(self, value: Any, schema: Json) -> bool:
        def count(word: str) -> int:
            return sum(self.is_valid(value, one) for one in schema[word])

        checks = (
            "allOf" not in schema or count("allOf") == len(schema["allOf"]),
            "anyOf" not in schema or count("anyOf") > 0,
            "oneOf" not in schema or count("oneOf") == 1,
            "not" not in schema or not self.is_valid(value, schema["not"]),
        )
        if not all(checks):
            return False
        if "if" not in schema:
            return True
        branch = "then" if self.is_valid(value, schema["if"]) else "else"
        return self.is_valid(value, schema.get(branch, True))

    def _is_object_valid(self, value: Json, schema: Json) -> bool:
        named = schema.get("propertyNames", True)
        return all(self.is_valid(name, named) for name in value) and all(
            self.is_valid(member, part) for name, member in value.items() for part in self._member_schemas(name, schema)
        )

    def _member_schemas(self, name: str, schema: Json) -> list[Any]:
        """Return the schemas of one member of an object."""
        found = [schema["properties"][name]] if name in schema.get("properties", {}) else []
        patterns = schema.get("patternProperties", {})
        found += [part for pattern, part in patterns.items() if _has_pattern(name, pattern)]
        extra = [schema["additionalProperties"]] if "additionalProperties" in schema and not found else []
        return found + extra

    def _is_array_valid(self, value: list[Any], schema: Json) -> bool:
        if "contains" in schema:
            count = sum(self.is_valid(item, schema["contains"]) for item in value)
            if not schema.get("minContains", 1) <= count <= schema.get("maxContains", count):
                return False
        first = schema.get("prefixItems", [])
        rest = schema.get("items", True)
        return all(
            self.is_valid(item, first[place] if place < len(first) else rest) for place, item in enumerate(value)
        )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_TYPES: Mapping[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, Mapping),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "number": _is_number,
    "integer": lambda value: _is_number(value) and float(value).is_integer(),
}


def _has_type(value: Any, types: Any) -> bool:
    named = types if isinstance(types, list) else [types]
    return any(_TYPES[one](value) if one in _TYPES else True for one in named)


def is_same_json(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal; true is not 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(is_same_json(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_same_json, one, other))
    return bool(one == other)


def _has_pattern(text: str, pattern: str) -> bool:
    """Whether the pattern is found; a pattern that Python cannot read constrains nothing."""
    try:
        return re.search(pattern, text) is not None
    except re.error:
        return True


def _is_multiple(value: float, step: float) -> bool:
    return abs(value / step - round(value / step)) < 1e-9


def _for(kind: Callable[[Any], bool], check: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    """Return a check that holds for values of all other types."""
    return lambda value, limit: not kind(value) or check(value, limit)


_PLAIN: Mapping[str, Callable[[Any, Any], bool]] = {
    "type": _has_type,
    "enum": lambda value, allowed: any(is_same_json(value, one) for one in allowed),
    "const": is_same_json,
    "minimum": _for(_is_number, lambda value, limit: value >= limit),
    "maximum": _for(_is_number, lambda value, limit: value <= limit),
    "exclusiveMinimum": _for(_is_number, lambda value, limit: isinstance(limit, bool) or value > limit),
    "exclusiveMaximum": _for(_is_number, lambda value, limit: isinstance(limit, bool) or value < limit),
    "multipleOf": _for(_is_number, _is_multiple),
    "minLength": _for(_TYPES["string"], lambda value, limit: len(value) >= limit),
    "maxLength": _for(_TYPES["string"], lambda value, limit: len(value) <= limit),
    "pattern": _for(_TYPES["string"], _has_pattern),
    "minItems": _for(_TYPES["array"], lambda value, limit: len(value) >= limit),
    "maxItems": _for(_TYPES["array"], lambda value, limit: len(value) <= limit),
    "uniqueItems": _for(_TYPES["array"], lambda value, wanted: not wanted or _is_unique(value)),
    "required": _for(_TYPES["object"], lambda value, names: all(name in value for name in names)),
    "dependentRequired": _for(_TYPES["object"], lambda value, wanted: _has_dependents(value, wanted)),
    "minProperties": _for(_TYPES["object"], lambda value, limit: len(value) >= limit),
    "maxProperties": _for(_TYPES["object"], lambda value, limit: len(value) <= limit),
}


def _has_dependents(value: Json, wanted: Mapping[str, list[str]]) -> bool:
    return all(name in value for key, names in wanted.items() if key in value for name in names)


def _is_unique(values: list[Any]) -> bool:
    return not any(is_same_json(one, other) for place, one in enumerate(values) for other in values[:place])
