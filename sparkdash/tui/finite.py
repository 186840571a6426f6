"""Facts without figures that are no numbers: an engine may tell "not a number" or infinity.

Owns: what becomes of them: unknown. Rule: a value that needs the figure goes with it; facts without such figures stay
the same objects.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from math import isfinite
from typing import Any, TypeVar

from sparkdash.domain.base import Frozen

T = TypeVar("T", bound=Frozen)


def without_odd_figures(fact: T) -> T | None:
    """Return the fact with None for every figure that is no finite number; None if it needs one of them itself."""
    found = _finite(fact)
    return found if isinstance(found, type(fact)) else None


def _finite(value: Any) -> Any:
    """Return the value, or None for a figure that is not finite and for a fact that cannot be without it."""
    match value:
        case float():
            return value if isfinite(value) else None
        case Frozen():
            return _fact(value)
        case Mapping():
            return _kept(
                value, {key: found for key, one in value.items() if (found := _finite(one)) is not None or one is None}
            )
        case tuple():
            found = tuple(_finite(one) for one in value)
            return value if all(a is b for a, b in zip(found, value, strict=True)) else _known(found)
        case _:
            return value


def _kept(before: Mapping[Any, Any], after: dict[Any, Any]) -> Mapping[Any, Any]:
    same = len(after) == len(before) and all(after[key] is before[key] for key in before)
    return before if same else after


def _known(found: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Return None for a list with an unknown figure: its places mean something."""
    return None if None in found else found


def _fact(value: Frozen) -> Frozen | None:
    changes: dict[str, Any] = {}
    for name, before in value.__dict__.items():
        after = _finite(before)
        if after is not before:
            changes[name] = after
    needed = _needed(type(value))
    if any(after is None and name in needed for name, after in changes.items()):
        return None
    return value.replace(**changes) if changes else value


@cache
def _needed(kind: type[Frozen]) -> frozenset[str]:
    """Return the fields that cannot be None."""
    return frozenset(name for name, field in kind.model_fields.items() if not _may_be_none(field.annotation))


def _may_be_none(annotation: Any) -> bool:
    return annotation is None or annotation is type(None) or type(None) in getattr(annotation, "__args__", ())
