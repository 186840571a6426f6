"""Base class and decorator of the domain's values: frozen, strict about their keys. Pure."""

import ast
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self, TypeVar, dataclass_transform

from pydantic import BaseModel, ConfigDict

T = TypeVar("T")
STRICT = ConfigDict(extra="forbid", defer_build=True)
"""`__pydantic_config__` of the classes that `per_request` and `of_many_fields` make."""


class Frozen(BaseModel):
    """A value that cannot change and refuses keys it does not know."""

    # a validator is built when it is first needed: a start, and most commands, need few of them. A default in a
    # class's head therefore comes from `model_construct`
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    def replace(self, **changes: object) -> Self:
        """Copy with these fields changed, not validated. Raises TypeError for a name that is no field."""
        if unknown := changes.keys() - type(self).model_fields.keys():
            raise TypeError(f"{type(self).__name__} has no field {', '.join(sorted(unknown))}")
        return self.model_copy(update=changes)


class WithCachedProperties(Frozen):
    """A value whose cached properties are computed anew in each copy."""

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        copied = super().model_copy(update=update, deep=deep)
        for name in copied.__dict__.keys() - type(self).model_fields.keys():
            del copied.__dict__[name]
        return copied


@dataclass_transform(frozen_default=True)
def of_many_fields(cls: type[T]) -> type[T]:
    """Make a value class whose values are made of a dictionary several times per request; frozen for mypy alone.

    A constructor with thirty named arguments takes ten times as long as handing the dictionary over.
    """
    return dataclass(cls)


@dataclass_transform(frozen_default=True)
def per_request(cls: type[T]) -> type[T]:
    """Make a slotted value class for values that are made several times per request; frozen for mypy alone.

    Freezing at run time costs four times the construction, a pydantic model ten times the memory.
    """
    return dataclass(slots=True)(cls)


def field_docstrings(model: type[BaseModel]) -> dict[str, str]:
    """Return the text below each field of a model, from its source: pydantic's own reading slows every start."""
    (body,) = (node.body for node in ast.parse(inspect.getsource(model)).body if isinstance(node, ast.ClassDef))
    return {
        field.target.id: below.value.value
        for field, below in pairwise(body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) and isinstance(below.value.value, str)
    }
