"""Offers: engines that come when nobody waits and nobody must leave for them. Pure.

Owns: which were evicted for a swap that failed (they fall back, once each), and what is to be preloaded. Must not
know whether an offer can be taken.
"""

from __future__ import annotations

from collections import deque

from sparkdash.domain.swap import SwapCause


class Offers:
    """Fall backs first, then preloads, each in its order."""

    def __init__(self) -> None:
        self._evicted: list[str] = []
        """For a swap that has not succeeded yet."""
        self.fallbacks: deque[str] = deque()
        self._preloads: deque[str] = deque()

    def preload(self, profiles: tuple[str, ...]) -> None:
        """These should be there before anybody asks."""
        self._preloads.extend(profiles)

    def take(self) -> tuple[str, SwapCause] | None:
        """The next one; it is not offered again."""
        if self.fallbacks:
            return self.fallbacks.popleft(), SwapCause.FALLBACK
        return (self._preloads.popleft(), SwapCause.PRELOAD) if self._preloads else None

    def evicted(self, profile: str) -> None:
        """It left for the swap under way."""
        self._evicted.append(profile)

    def failed(self, target: str) -> None:
        """That swap failed: those that left for it may come back."""
        self.fallbacks.extend(name for name in self._evicted if name != target)
        self._evicted.clear()

    def succeeded(self) -> None:
        """They left for good."""
        self._evicted.clear()

    def begun(self, target: str, cause: SwapCause) -> None:
        """A swap to `target` begins, offered or asked for: there is nothing to offer any more."""
        if target in self.fallbacks:
            self.fallbacks.remove(target)
        if target in self._preloads:
            self._preloads.remove(target)
        if cause is SwapCause.FALLBACK:
            self._evicted.clear()

    def stopped(self, profile: str | None) -> None:
        """A person wanted this, or everything, gone: what they stopped does not come by itself, and no fall back does."""
        self.fallbacks.clear()
        self._evicted = [name for name in self._evicted if profile not in (None, name)]
        self._preloads = deque(name for name in self._preloads if profile not in (None, name))
