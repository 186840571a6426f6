"""Narrow: the world as a key for some models sees it.

Owns: what is left out of it. Everything that answers such a key is handed this instead of the whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from sparkdash.access.key import Key
from sparkdash.bus import Bus, Subscription
from sparkdash.domain.event import Event, Fact
from sparkdash.domain.profile import Profile
from sparkdash.domain.state import Snapshot
from sparkdash.gateway.access import may_see, permitted
from sparkdash.gateway.deps import Catalog, Deps


def narrowed(deps: Deps, key: Key) -> Deps:
    """The same deps for a key that may use all, else with the catalog and the snapshot without the other models."""
    if not key.models:
        return deps
    bus = _Bus(deps.bus, key)
    return deps.seen_through(bus, partial(_catalog, deps, bus, key))


def _catalog(deps: Deps, bus: Bus, key: Key) -> Catalog:
    return _Catalog(deps.catalog(), bus, key)


class _Catalog:
    def __init__(self, whole: Catalog, bus: Bus, key: Key) -> None:
        self._whole = whole
        self._bus = bus
        self._key = key

    @property
    def profiles(self) -> Mapping[str, Profile]:
        """Those that the key may use."""
        return {name: each for name, each in self._whole.profiles.items() if may_see(self._key, each)}

    @property
    def problems(self) -> Iterable[object]:
        """None: they are the owner's affair."""
        return ()

    def find(self, name: str) -> Profile:
        """By name, alias or basename. Raises AdmissionError: also `model_not_allowed`."""
        return self._whole.find(permitted(self._key, name, self._whole, self._bus.snapshot))

    def exactly(self, name: str) -> Profile | None:
        """By name or alias, as it is written; None for those that the key may not use."""
        found = self._whole.exactly(name)
        return found if found is not None and may_see(self._key, found) else None


class _Bus(Bus):
    """Tells and hears what the whole bus does; its snapshot has only the models that the key may use."""

    def __init__(self, whole: Bus, key: Key) -> None:
        self._whole = whole
        self._key = key

    @property
    def snapshot(self) -> Snapshot:
        """Now, without the other models."""
        whole = self._whole.snapshot
        profiles = tuple(each for each in whole.profiles if may_see(self._key, each))
        names = {each.name for each in profiles}
        engines = {name: engine for name, engine in whole.engines.items() if name in names}
        return whole.replace(profiles=profiles, engines=engines, measuring=None)

    @property
    def listeners(self) -> int:
        """Of the whole bus."""
        return self._whole.listeners

    def note_poll(self) -> None:
        """To the whole bus."""
        self._whole.note_poll()

    def publish(self, fact: Fact) -> Event:
        """To the whole bus."""
        return self._whole.publish(fact)

    def subscribe(self, since: int | None = None, *, samples: bool = True) -> Subscription:
        """To the whole bus: who serves such a key tells only what is in the snapshot."""
        return self._whole.subscribe(since, samples=samples)

    def unsubscribe(self, subscription: Subscription) -> None:
        """From the whole bus."""
        self._whole.unsubscribe(subscription)
