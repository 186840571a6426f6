"""Need: unified memory that one launch takes, term by term, each with its source.

Owns: the value that `why`, admission and the screens share. Must not know how a term was found. Footprints are learned
by the store's readers, estimates come from the weights' headers, the rest is declared in a profile.
Pure.
"""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from sparkdash.domain.base import Frozen


class Basis(StrEnum):
    """Origin of a need, the most trusted first."""

    LEARNED = "learned"
    """Measured on this box, from earlier loads of the same fingerprint."""
    DECLARED = "declared"
    """Written in the profile, with its source."""
    ESTIMATED = "estimated"
    """Computed from the weights' headers and the engine's flags."""
    UNKNOWN = "unknown"
    """At least one term is unknown, so there is no sum."""


class Term(Frozen):
    """Summand of a need."""

    name: str
    """Word of the field: weights, drafter, kv, overhead, steady, or utilization (a share of the box taken whole)."""
    bytes: int | None = Field(default=None, ge=0)
    """Size of the term; None is unknown, not zero."""
    source: str
    """Header, flag, file or measurement behind the figure, in words; for an unknown one, what is missing."""


class Need(Frozen):
    """Memory that a launch takes while it serves, and at most while it loads. Bytes; None is unknown, not zero."""

    basis: Basis = Basis.UNKNOWN
    terms: tuple[Term, ...] = ()
    peak_bytes: int | None = Field(default=None, ge=0)
    """Peak while loading, when known; never less than the need while serving."""

    @property
    def total_bytes(self) -> int | None:
        """Sum of the terms: the need while serving. None while any term is unknown, or without terms."""
        total = 0
        for term in self.terms:  # a loop: every decision asks for it, several times
            if term.bytes is None:
                return None
            total += term.bytes
        return total if self.terms else None

    @property
    def room_bytes(self) -> int | None:
        """Memory that must be free before the start: the peak when known, else the sum."""
        total = self.total_bytes
        if total is None or self.peak_bytes is None:
            return total
        return max(total, self.peak_bytes)
