"""Narrow: the gateway's dependencies as a key for some models may use them.

Owns: every call on behalf of such a key. A call for one of the key's models passes, one for another model is refused,
and lists and events are cut to what the key may see. A route for such a key gets these dependencies and no others, so
no route needs a check of its own. Must not know the routes: `rights` does.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from typing import NoReturn

from sparkdash.access.key import Key
from sparkdash.domain.container import PullProgress
from sparkdash.domain.event import Event, Fact
from sparkdash.domain.incident import IncidentList
from sparkdash.domain.profile import Profile
from sparkdash.domain.state import Snapshot
from sparkdash.domain.swap import Plan, SetPlan, SwapCause
from sparkdash.domain.task import Task
from sparkdash.domain.weights import WeightFacts
from sparkdash.errors import AdmissionError, EngineError, SparkdashError
from sparkdash.gateway.admission.access import may_see, permitted_name, whole_box_refused
from sparkdash.gateway.admission.key_view import KeyView
from sparkdash.gateway.admission.narrowed_history import NarrowedHistory
from sparkdash.gateway.deps import Deps
from sparkdash.gateway.ports import (
    BusPort,
    CatalogPort,
    EndRequest,
    LeasePort,
    RequestRegistryPort,
    SubscriptionPort,
    SupervisorPort,
)
from sparkdash.gateway.shared.running_requests import unknown_request
from sparkdash.supervisor.claim import AnswerProgress


def narrow_deps(deps: Deps, key: Key) -> Deps:
    """Narrow the dependencies to the key's models; unchanged for a key that may use all."""
    if not key.models:
        return deps
    bus = _Bus(deps.bus, key)

    def catalog() -> CatalogPort:
        return _Catalog(deps.catalog(), bus, key)

    supervisor = _Supervisor(deps.supervisor, deps.catalog, bus, key)
    history = NarrowedHistory(deps.history, key, lambda: bus.view.profiles) if deps.history else None
    return deps.with_views(bus, catalog, supervisor, _Running(deps.running, bus), history)


class _Catalog:
    def __init__(self, whole: CatalogPort, bus: _Bus, key: Key) -> None:
        self._whole = whole
        self._bus = bus
        self._key = key

    @property
    def profiles(self) -> Mapping[str, Profile]:
        """Profiles that the key may use, by name."""
        return {name: each for name, each in self._whole.profiles.items() if may_see(self._key, each)}

    @property
    def problems(self) -> Iterable[object]:
        """Return nothing: problems of files concern the owner."""
        return ()

    def find(self, name: str) -> Profile:
        """Find a profile by name, alias or basename. Raises AdmissionError: also `model_not_allowed`."""
        return self._whole.find(permitted_name(self._key, name, self._whole, lambda: self._bus.snapshot))

    def exactly(self, name: str) -> Profile | None:
        """Find a profile by its exact name or alias; None for profiles that the key may not use."""
        found = self._whole.exactly(name)
        return found if found is not None and may_see(self._key, found) else None


class _Bus:
    """The bus, with events and snapshots cut to the key's models."""

    def __init__(self, whole: BusPort, key: Key) -> None:
        self._whole = whole
        self._key = key
        self._seen: tuple[Snapshot, Snapshot] | None = None
        """Cache: the last whole snapshot, and the key's view of it."""
        self._view = KeyView.of(key, ())
        self._profiles: object = None
        """Cache key: the profile summaries from which the sight was made."""

    @property
    def view(self) -> KeyView:
        """Sight of the key at this moment."""
        profiles = self._whole.snapshot.profiles
        if profiles is not self._profiles:
            self._profiles, self._view = profiles, KeyView.of(self._key, profiles)
        return self._view

    @property
    def snapshot(self) -> Snapshot:
        """Snapshot as the key may see it."""
        whole = self._whole.snapshot
        if self._seen is None or self._seen[0] is not whole:
            self._seen = whole, self.view.snapshot(whole)
        return self._seen[1]

    @property
    def whole_snapshot(self) -> Snapshot:
        """The whole snapshot, for decisions that the key is not told."""
        return self._whole.snapshot

    def note_poll(self) -> None:
        """Count a poll of the state, on the whole bus."""
        self._whole.note_poll()

    def publish(self, fact: Fact) -> Event:
        """Publish on the whole bus."""
        return self._whole.publish(fact)

    def subscribe(self, since: int | None = None, *, samples: bool = True) -> SubscriptionPort:
        """Subscribe to the whole bus; pass on what the key may see."""
        return _Subscription(self._whole.subscribe(since, samples=samples), self)


class _Subscription:
    def __init__(self, whole: SubscriptionPort, bus: _Bus) -> None:
        self._whole = whole
        self._bus = bus

    async def __aiter__(self) -> AsyncGenerator[Event | Snapshot, None]:
        async with aclosing(self._whole.__aiter__()) as items:
            async for item in items:
                view = self._bus.view
                yield view.snapshot(item) if isinstance(item, Snapshot) else view.event(item)

    def leave(self) -> None:
        """Leave the whole bus."""
        self._whole.leave()


class _Supervisor:
    """The supervisor for the key's own models; refuses calls that concern every model."""

    def __init__(self, whole: SupervisorPort, catalog: Callable[[], CatalogPort], bus: _Bus, key: Key) -> None:
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
        progress: AnswerProgress | None = None,
    ) -> AbstractAsyncContextManager[LeasePort]:
        """Lease the engine of an own model."""
        own = permitted_name(self._key, name, self._catalog(), lambda: self._bus.snapshot, task)
        leased = self._whole.lease(
            own, request_id=request_id, on_wait=on_wait, batch=batch, task=task, client=client, progress=progress
        )
        return _narrowed_lease(leased)

    async def sickness(self, profile: Profile, url: str) -> str | None:
        """Probe an own model's engine that a lease gave."""
        return await self._whole.sickness(profile, url)

    async def use(self, name: str, *, cause: SwapCause) -> Plan:
        """Use an own model. Other models make room as for a request; only own ones are named in the answer."""
        try:
            return self._bus.view.plan(await self._whole.use(self._own(name), cause=cause))
        except (AdmissionError, EngineError) as error:
            raise _narrowed(error) from None

    async def use_set(self, name: str, *, begin: bool) -> SetPlan:  # noqa: ARG002 - the route is closed to such keys
        """Refuse: a set concerns the whole box."""
        self._refuse("a set concerns the whole box")

    async def plan(self, name: str) -> Plan:
        """Plan a swap to an own model."""
        return self._bus.view.plan(await self._whole.plan(self._own(name)))

    async def stop(self, name: str | None, *, wait: bool = True) -> None:
        """Stop an own model's engine."""
        await self._whole.stop(self._one(name), wait=wait)

    async def release(self, name: str | None) -> None:
        """Release an own model."""
        await self._whole.release(self._one(name))

    async def extend_load(self, name: str) -> None:
        """Extend the load of an own model."""
        await self._whole.extend_load(self._own(name))

    async def cancel(self) -> None:
        """Cancel every swap under way, if all of them concern own models only."""
        if not all(map(self._bus.view.covers, self._bus.whole_snapshot.swaps_under_way)):
            self._refuse("other models are part of the swaps under way")
        await self._whole.cancel()

    def target(self, profile: Profile) -> WeightFacts | None:
        """Return the target of a profile that the narrowed catalog gave."""
        return self._whole.target(profile)

    def incidents(self) -> IncidentList:
        """List the incidents of own models."""
        whole, view = self._whole.incidents(), self._bus.view
        return IncidentList(incidents=view.incidents(whole.incidents), repairs=view.repairs(whole.repairs))

    def logs(self, name: str, *, tail: int | None = None, follow: bool = False) -> AsyncIterator[str]:
        """Read the log of an own model's engine."""
        return self._whole.logs(self._own(name), tail=tail, follow=follow)

    def pull(self, name: str) -> AsyncIterator[PullProgress]:
        """Pull an own model's image."""
        return self._whole.pull(self._own(name))

    def _own(self, name: str) -> str:
        return permitted_name(self._key, name, self._catalog(), lambda: self._bus.snapshot)

    def _one(self, name: str | None) -> str:
        if name is None:
            self._refuse("this call concerns all models")
        return self._own(name)

    def _refuse(self, why: str) -> NoReturn:
        raise whole_box_refused(self._key, why)


@asynccontextmanager
async def _narrowed_lease(leased: AbstractAsyncContextManager[LeasePort]) -> AsyncIterator[LeasePort]:
    """Narrow the errors of a lease."""
    try:
        async with leased as lease:
            yield lease
    except (AdmissionError, EngineError) as error:
        raise _narrowed(error) from None


def _narrowed(error: AdmissionError | EngineError) -> SparkdashError:
    """Copy an error without what concerns the whole box: other holders of memory, folders of evidence."""
    return error.without_holders() if isinstance(error, AdmissionError) else error.without_evidence()


class _Running:
    """Requests under way that the key sees, and so can cancel."""

    def __init__(self, whole: RequestRegistryPort, bus: _Bus) -> None:
        self._whole = whole
        self._bus = bus

    def begun(self, request_id: str, off: EndRequest) -> None:
        """Register a request that waits or runs."""
        self._whole.begun(request_id, off)

    def ended(self, request_id: str) -> None:
        """Remove a request that has ended."""
        self._whole.ended(request_id)

    def cancel(self, request_id: str) -> None:
        """Cancel a request for an own model. Raises AdmissionError: other requests are reported as unknown."""
        if request_id not in self._bus.snapshot.requests:
            raise unknown_request(request_id)
        self._whole.cancel(request_id)
