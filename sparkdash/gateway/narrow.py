"""Narrow: the world as a key for some models meets it.

Owns: that whatever a route asks for is asked in that key's name: an own model is handed on, another one refused, lists and events
are cut to what may be seen. Whoever answers such a key is handed this and nothing else, so that no route needs a check of its own.
Must not know which routes there are: `rights` does.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing
from typing import NoReturn

from sparkdash.access.key import Key
from sparkdash.domain.container import PullProgress
from sparkdash.domain.event import Event, Fact
from sparkdash.domain.profile import Profile
from sparkdash.domain.state import Snapshot
from sparkdash.domain.swap import Plan, SwapCause
from sparkdash.domain.task import Task
from sparkdash.domain.weights import WeightFacts
from sparkdash.gateway.access import may_see, permitted, whole_box
from sparkdash.gateway.deps import Bus, Catalog, Deps, Lease, Running, Subscription, Supervisor
from sparkdash.gateway.running import Off, unknown
from sparkdash.gateway.sight import Sight


def narrowed(deps: Deps, key: Key) -> Deps:
    """The same deps for a key that may use all, else the part of them that concerns its models."""
    if not key.models:
        return deps
    bus = _Bus(deps.bus, key)

    def catalog() -> Catalog:
        return _Catalog(deps.catalog(), bus, key)

    supervisor = _Supervisor(deps.supervisor, deps.catalog, bus, key)
    return deps.seen_through(bus, catalog, supervisor, _Running(deps.running, bus))


class _Catalog:
    def __init__(self, whole: Catalog, bus: _Bus, key: Key) -> None:
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


class _Bus:
    """Tells what the whole bus does; what is heard of it, and its snapshot, concern the key's models only."""

    def __init__(self, whole: Bus, key: Key) -> None:
        self._whole = whole
        self._key = key
        self._seen: tuple[Snapshot, Snapshot] | None = None
        """The whole snapshot that was last asked for, and what the key sees of it."""
        self._sight = Sight.of(key, ())
        self._profiles: object = None
        """The summaries from which the sight was made."""

    @property
    def sight(self) -> Sight:
        """What the key may see now."""
        profiles = self._whole.snapshot.profiles
        if profiles is not self._profiles:
            self._profiles, self._sight = profiles, Sight.of(self._key, profiles)
        return self._sight

    @property
    def snapshot(self) -> Snapshot:
        """Now, as much as the key sees."""
        whole = self._whole.snapshot
        if self._seen is None or self._seen[0] is not whole:
            self._seen = whole, self.sight.snapshot(whole)
        return self._seen[1]

    @property
    def whole_snapshot(self) -> Snapshot:
        """All of it, for decisions that are not told."""
        return self._whole.snapshot

    def note_poll(self) -> None:
        """To the whole bus."""
        self._whole.note_poll()

    def publish(self, fact: Fact) -> Event:
        """To the whole bus."""
        return self._whole.publish(fact)

    def subscribe(self, since: int | None = None, *, samples: bool = True) -> Subscription:
        """To the whole bus, and hear what the key may."""
        return _Subscription(self._whole.subscribe(since, samples=samples), self)


class _Subscription:
    def __init__(self, whole: Subscription, bus: _Bus) -> None:
        self._whole = whole
        self._bus = bus

    async def __aiter__(self) -> AsyncGenerator[Event | Snapshot, None]:
        async with aclosing(self._whole.__aiter__()) as items:
            async for item in items:
                sight = self._bus.sight
                yield sight.snapshot(item) if isinstance(item, Snapshot) else sight.event(item)

    def leave(self) -> None:
        """From the whole bus."""
        self._whole.leave()


class _Supervisor:
    """Does for the key's own models what the whole one does; what concerns every model is refused."""

    def __init__(self, whole: Supervisor, catalog: Callable[[], Catalog], bus: _Bus, key: Key) -> None:
        self._whole = whole
        self._catalog = catalog
        self._bus = bus
        self._key = key

    def lease(
        self,
        name: str,
        *,
        request_id: str,
        on_wait: Callable[[int], object],
        batch: bool = False,
        task: Task | None = None,
        client: str | None = None,
    ) -> AbstractAsyncContextManager[Lease]:
        """Of an own model."""
        own = permitted(self._key, name, self._catalog(), self._bus.snapshot, task)
        return self._whole.lease(own, request_id=request_id, on_wait=on_wait, batch=batch, task=task, client=client)

    async def sickness(self, profile: Profile, url: str) -> str | None:
        """Of an own model's engine, as a lease gave it."""
        return await self._whole.sickness(profile, url)

    async def use(self, name: str, *, cause: SwapCause) -> Plan:
        """An own model; others leave for it as they do for a request. Who, is told only of own ones."""
        return self._bus.sight.plan(await self._whole.use(self._own(name), cause=cause))

    async def plan(self, name: str) -> Plan:
        """For an own model."""
        return self._bus.sight.plan(await self._whole.plan(self._own(name)))

    async def stop(self, name: str | None, *, wait: bool = True) -> None:
        """An own model's engine."""
        await self._whole.stop(self._one(name), wait=wait)

    async def release(self, name: str | None) -> None:
        """An own model."""
        await self._whole.release(self._one(name))

    async def cancel(self) -> None:
        """Every swap under way, where all of them concern own models only."""
        if not all(map(self._bus.sight.covers, self._bus.whole_snapshot.swaps_under_way)):
            self._refuse("what is under way is of other models too")
        await self._whole.cancel()

    def target(self, profile: Profile) -> WeightFacts | None:
        """Of a profile that the narrowed catalog gave."""
        return self._whole.target(profile)

    def logs(self, name: str, *, tail: int | None = None, follow: bool = False) -> AsyncIterator[str]:
        """Of an own model's engine."""
        return self._whole.logs(self._own(name), tail=tail, follow=follow)

    def pull(self, name: str) -> AsyncIterator[PullProgress]:
        """An own model's image."""
        return self._whole.pull(self._own(name))

    def _own(self, name: str) -> str:
        return permitted(self._key, name, self._catalog(), self._bus.snapshot)

    def _one(self, name: str | None) -> str:
        if name is None:
            self._refuse("that is asked of all models")
        return self._own(name)

    def _refuse(self, why: str) -> NoReturn:
        raise whole_box(self._key, why)


class _Running:
    """All requests, of which the key may end those that it sees."""

    def __init__(self, whole: Running, bus: _Bus) -> None:
        self._whole = whole
        self._bus = bus

    def begun(self, request_id: str, off: Off) -> None:
        """It waits or runs."""
        self._whole.begun(request_id, off)

    def ended(self, request_id: str) -> None:
        """It is over."""
        self._whole.ended(request_id)

    def cancel(self, request_id: str) -> None:
        """End a request for an own model. Raises AdmissionError: of others it is not even told that they are there."""
        if request_id not in self._bus.snapshot.requests:
            raise unknown(request_id)
        self._whole.cancel(request_id)
