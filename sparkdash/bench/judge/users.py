"""Users that the arms' engines ran at once, by admission and by the size of their cache.

Owns: which ramps count, the computed number. Must not know: how users join.
Pure.
"""

from __future__ import annotations

from statistics import median

from sparkdash.bench.records import UserAdmission
from sparkdash.bench.results import Results
from sparkdash.bench.run import CellKey, Kind
from sparkdash.domain.base import Frozen


class ArmUsers(Frozen):
    """Users of one arm in one cell."""

    arm: str
    key: CellKey
    ramps: tuple[UserAdmission, ...]
    """Ramps that count, in the order of measuring."""

    @property
    def context(self) -> int:
        """Smallest context of the ramps, in tokens."""
        return min(one.context for one in self.ramps)

    @property
    def admitted(self) -> float:
        """Median number of users over the ramps."""
        return median(one.admitted for one in self.ramps)

    @property
    def computed(self) -> int | None:
        """Whole contexts that the cache holds by the engine's own figure; None: it told none."""
        tokens = next((one.kv_tokens for one in reversed(self.ramps) if one.kv_tokens), None)
        return None if tokens is None else concurrent_users(tokens, self.context)


def concurrent_users(kv_tokens: int, context: int) -> int:
    """Return how many whole contexts a cache of so many tokens holds at once."""
    return kv_tokens // context


def arm_users(results: Results) -> tuple[ArmUsers, ...]:
    """Return the users of every arm and cell with a ramp that counts."""
    keys = [cell.key for cell in results.run.cells if cell.key.kind is Kind.USERS]
    found = []
    for arm in results.run.arms:
        for key in keys:
            ramps = tuple(one.admission for one in results.good(arm.name, key) if one.admission is not None)
            if ramps:
                found.append(ArmUsers(arm=arm.name, key=key, ramps=ramps))
    return tuple(found)
