"""Offers: engines that come when no request waits for them and none must leave.

These are engines that were ended because they were stuck, engines that were evicted for a swap that failed (each comes
again once), and preloads.

Pure.
"""

from __future__ import annotations

from collections import deque

from sparkdash.domain.swap import SwapCause

OFFERED = frozenset({SwapCause.REPAIR, SwapCause.FALLBACK, SwapCause.PRELOAD, SwapCause.SET, SwapCause.DEFAULT})
"""Causes of the swaps that nobody waits for."""


class Offers:
    """Repairs first, then fall backs, then preloads, each in its order."""

    def __init__(self) -> None:
        self._evicted: dict[str, list[str]] = {}
        """Evicted profiles, by the targets of swaps that have not succeeded yet."""
        self._repairs: deque[str] = deque()
        self.fallbacks: deque[str] = deque()
        self._preloads: dict[str, SwapCause] = {}
        """Profiles to preload in their order, with the cause of each."""

    def repair(self, profile: str) -> None:
        if profile not in self._repairs:
            self._repairs.append(profile)

    def repairs(self, profile: str) -> bool:
        """Whether an engine of this profile is to come in the place of a stuck one."""
        return profile in self._repairs

    def preload(self, profiles: tuple[str, ...], cause: SwapCause) -> None:
        for profile in profiles:
            self._preloads.setdefault(profile, cause)

    def next(self) -> tuple[str, SwapCause] | None:
        if self._repairs:
            return self._repairs[0], SwapCause.REPAIR
        if self.fallbacks:
            return self.fallbacks[0], SwapCause.FALLBACK
        return next(iter(self._preloads.items()), None)

    def take(self) -> None:
        if offers := self._repairs or self.fallbacks:
            offers.popleft()
        else:
            self._preloads.pop(next(iter(self._preloads)))

    def evicted(self, profile: str, target: str) -> None:
        self._evicted.setdefault(target, []).append(profile)

    def failed(self, target: str) -> None:
        """Offer the profiles again that left for a swap that failed."""
        self.fallbacks.extend(name for name in self._evicted.pop(target, ()) if name != target)

    def succeeded(self, target: str) -> None:
        """Drop the profiles that were evicted for this swap: they are not offered again."""
        self._evicted.pop(target, None)

    def begun(self, target: str) -> None:
        """A swap to `target` begins, offered or asked for: there is nothing to offer any more."""
        for offers in (self._repairs, self.fallbacks):
            if target in offers:
                offers.remove(target)
        self._preloads.pop(target, None)

    def stopped(self, profile: str | None) -> None:
        """Drop the offers of what a person stopped (None: everything), and every fallback."""
        self._repairs = deque(name for name in self._repairs if profile not in (None, name))
        self.fallbacks.clear()
        for evicted in self._evicted.values():
            evicted[:] = [name for name in evicted if profile not in (None, name)]
        self._preloads = {name: cause for name, cause in self._preloads.items() if profile not in (None, name)}
