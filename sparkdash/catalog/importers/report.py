"""What an import gives, and what it tells about what it could not carry over.

Owns: the shape of the result. Must not know: any format.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from sparkdash.errors import ProfileError

Kind = Literal["unknown", "dropped", "rewritten", "note"]


@dataclass(frozen=True, slots=True)
class Remark:
    """One thing that the profile does not say as its source did. Never holds a secret's value."""

    kind: Kind
    what: str
    """The flag or key, as the source spells it."""
    why: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.what}: {self.why}"


@dataclass(frozen=True, slots=True)
class Imported:
    """Profiles as a profile file says them, one mapping a family, and everything worth telling about the way there."""

    form: str
    """What the input was taken for."""
    profiles: tuple[dict[str, Any], ...]
    remarks: tuple[Remark, ...]


@dataclass(slots=True)
class ImportNotes:
    """Collects remarks; the same one is kept once."""

    found: dict[Remark, None] = field(default_factory=dict)

    def unknown(self, what: str, why: str = "not understood, left out") -> None:
        """A key or flag that this importer does not know."""
        self._add("unknown", what, why)

    def dropped(self, what: str, why: str) -> None:
        """Understood, and left out on purpose."""
        self._add("dropped", what, why)

    def rewritten(self, what: str, why: str) -> None:
        """Said in other words in the profile."""
        self._add("rewritten", what, why)

    def note(self, what: str, why: str) -> None:
        """Worth a look."""
        self._add("note", what, why)

    def imported(self, form: str, *profiles: dict[str, Any]) -> Imported:
        """The result, with all that was noted."""
        return Imported(form, profiles, tuple(self.found))

    def _add(self, kind: Kind, what: str, why: str) -> None:
        self.found[Remark(kind, what if len(what) <= 80 else what[:79] + "…", why)] = None


def import_refused(message: str, hint: str | None = None) -> ProfileError:
    """The error for input that gives no profile."""
    return ProfileError(message, code="import_refused", hint=hint)
