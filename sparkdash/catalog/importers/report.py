"""Result of an import: profiles, and remarks about what could not be carried over.

Owns: the shape of the result. Must not know any format.
Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from sparkdash.errors import ProfileError

Kind = Literal["unknown", "dropped", "rewritten", "note"]


@dataclass(frozen=True, slots=True)
class Remark:
    """Difference between the profile and its source. Never holds a secret's value."""

    kind: Kind
    what: str
    """Flag or key, as the source spells it."""
    why: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.what}: {self.why}"


@dataclass(frozen=True, slots=True)
class Imported:
    """Imported profiles, one mapping per family as in a profile file, with the remarks."""

    form: str
    """Recognised format of the input."""
    profiles: tuple[dict[str, Any], ...]
    remarks: tuple[Remark, ...]
    settings: tuple[str, ...] = ()
    """Lines for config.toml that say what the source says for its whole box, or about when a profile runs."""


@dataclass(slots=True)
class ImportNotes:
    """Collector of remarks, without duplicates."""

    found: dict[Remark, None] = field(default_factory=dict)
    settings: list[str] = field(default_factory=list)
    """Lines for config.toml."""

    def unknown(self, what: str, why: str = "not understood, left out") -> None:
        """Note an unknown key or flag."""
        self._add("unknown", what, why)

    def dropped(self, what: str, why: str) -> None:
        """Note a key that is understood and left out on purpose."""
        self._add("dropped", what, why)

    def rewritten(self, what: str, why: str) -> None:
        """Note a key that the profile expresses differently."""
        self._add("rewritten", what, why)

    def note(self, what: str, why: str) -> None:
        """Note something that deserves a look."""
        self._add("note", what, why)

    def imported(self, form: str, *profiles: dict[str, Any]) -> Imported:
        """Return the result with all remarks."""
        return Imported(form, profiles, tuple(self.found), tuple(self.settings))

    def _add(self, kind: Kind, what: str, why: str) -> None:
        self.found[Remark(kind, what if len(what) <= 80 else what[:79] + "…", why)] = None


def import_refused(message: str, hint: str | None = None) -> ProfileError:
    """Make the error for input that gives no profile."""
    return ProfileError(message, code="import_refused", hint=hint)
