"""Need: what one launch takes of the unified memory, term by term, each with where the figure comes from.

Owns: the value that `why`, admission and the screens share. Must not know how a term was found: the footprints are
learned by the store's readers, the estimate is made from the weights' own headers, the rest is declared in a profile.
"""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from sparkdash.domain.base import Frozen


class Basis(StrEnum):
    """What a need rests on, the most trusted first."""

    LEARNED = "learned"
    """Measured on this box, from earlier loads of the same fingerprint."""
    DECLARED = "declared"
    """Written in the profile, with its source."""
    ESTIMATED = "estimated"
    """Computed from the weights' headers and the engine's flags."""
    UNKNOWN = "unknown"
    """At least one term is not known: no sum."""


class Term(Frozen):
    """One summand of a need."""

    name: str
    """A word of the field: weights, drafter, kv, overhead, utilization (a share of the box that the engine takes whole), steady."""
    bytes: int | None = Field(default=None, ge=0)
    """None is unknown, not zero."""
    source: str
    """In words: the header, flag, file or measurement that the figure comes from; for an unknown one, what is missing."""


class Need(Frozen):
    """What a launch takes while it serves, and at most while it loads. Bytes; None is unknown, not zero."""

    basis: Basis = Basis.UNKNOWN
    terms: tuple[Term, ...] = ()
    peak_bytes: int | None = Field(default=None, ge=0)
    """The most it takes while loading, when that is known; never less than what it takes while it serves."""

    @property
    def total_bytes(self) -> int | None:
        """The sum of the terms: what it takes while it serves. None while any is unknown, or none is named."""
        total = 0
        for term in self.terms:  # a loop: every decision asks for it, several times
            if term.bytes is None:
                return None
            total += term.bytes
        return total if self.terms else None

    @property
    def room_bytes(self) -> int | None:
        """What must be free before it starts: its peak when known, else its sum."""
        total = self.total_bytes
        if total is None or self.peak_bytes is None:
            return total
        return max(total, self.peak_bytes)
