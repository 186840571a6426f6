"""Debts: memory that ended engines have not given back yet.

Owns: who left, what each held, and how much of it is missing. Must not know how memory is measured.

Rule: what is missing is told only when it was measured what an engine held; a declared need is no evidence of a leak.

Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from sparkdash.units import GIB

TOLERANCE = GIB
"""Available memory moves this much by itself; less than that is not a debt."""
SHARE = 0.1
"""Nor is less than this share of what was held: pages shared with others count in each."""


@dataclass(frozen=True, slots=True)
class HeldMemory:
    """Memory that an engine held before its stop, in bytes."""

    took: int
    """Measured bytes, not declared ones."""
    available: int
    """Available memory of the box at that time."""


class MemoryDebts:
    """Open until what was held is back, or until another engine takes memory and nothing can be told any more."""

    def __init__(self) -> None:
        self._took: dict[str, int | None] = {}
        self._before: int | None = None
        self.at = float("-inf")
        """Time when the last engine left, monotonic seconds."""

    @property
    def who(self) -> tuple[str, ...]:
        """Profiles of the engines that left, in their order."""
        return tuple(self._took)

    @property
    def held(self) -> int | None:
        """Sum of the bytes that they held; None when one of them was not measured."""
        known = [took for took in self._took.values() if took is not None]
        return sum(known) if known and len(known) == len(self._took) else None

    def left(self, profile: str, now: float, held: HeldMemory | None = None) -> None:
        """An engine of ours is gone, however it ended; `held` None: nobody measured it now.

        What was measured before it was ended stands until a start takes memory.
        """
        self.at = now
        if held and self._before is None:
            self._before = held.available
        self._took[profile] = held.took if held else self._took.get(profile)

    def missing(self, available: int) -> int | None:
        """Return the bytes that have not come back; None when one of them was not measured."""
        held = self.held
        if held is None or self._before is None:
            return None if self._took else 0
        missing = self._before + held - available
        return missing if missing > max(TOLERANCE, held * SHARE) else 0

    def settle(self) -> None:
        """Forget all debts: they are paid, or can no longer be told."""
        self._took.clear()
        self._before = None
