"""What every domain value that crosses a process border is made of: frozen, and strict about its keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self, TypeVar, dataclass_transform

from pydantic import BaseModel, ConfigDict

T = TypeVar("T")
STRICT = ConfigDict(extra="forbid")
"""The `__pydantic_config__` of what is made by `per_request`."""


class Frozen(BaseModel):
    """A value that cannot change and refuses keys it does not know."""

    # a validator is built when it is first needed: a start, and most commands, need few of them
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    def replace(self, **changes: object) -> Self:
        """Copy with these fields changed. mypy checks names and types (`tests/contract/typed_replace.py`).

        Raises TypeError for a name that is no field. Values are not validated: they come from our own code.
        """
        if unknown := changes.keys() - type(self).model_fields.keys():
            raise TypeError(f"{type(self).__name__} has no field {', '.join(sorted(unknown))}")
        return self.model_copy(update=changes)


@dataclass_transform(frozen_default=True)
def per_request(cls: type[T]) -> type[T]:
    """A class of values that are made several times for every request. No model, as their maker knows their types, and whoever
    reads them from elsewhere has pydantic check them; and frozen for the type checker alone: to have Python see to either
    costs four times what they cost to make, and a model ten times their memory."""
    return dataclass(slots=True)(cls)
