"""Parked profiles beyond the life of one daemon: what the breaker knows, as people see it and as the store keeps it.

Owns: the way between the three. Must not know why a profile is parked, nor for how long: the breaker does.
"""

from __future__ import annotations

from collections.abc import Mapping

from sparkdash.domain.profile import Profile
from sparkdash.store import Store
from sparkdash.supervisor.books import Books, error_of
from sparkdash.supervisor.scheduling.breaker import Breaker, ParkedFailure


class Parking:
    """Copies parked profiles between breaker, books and store. Without a store, they are forgotten with the daemon."""

    def __init__(self, breaker: Breaker, books: Books, store: Store | None) -> None:
        self._breaker = breaker
        self._books = books
        self._store = store

    def recall(self, profiles: Mapping[str, Profile]) -> None:
        """Park again what an earlier daemon parked, unless its file went away or its launch was edited since."""
        kept = self._store.parked if self._store else {}
        for name, parked in kept.items():
            profile = profiles.get(name)
            if profile is not None and profile.fingerprint == parked.fingerprint:
                self._breaker.recall(name, ParkedFailure(error_of(parked.failure), parked.failures, parked.fingerprint))
        self._books.recall(kept)
        self.keep()

    def keep(self) -> None:
        """Tell and write down what changed; after every move."""
        for name, parked in self._books.park(self._breaker.parked).items():
            if self._store is not None:
                self._store.record_parked(name, parked)
