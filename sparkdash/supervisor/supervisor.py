"""The actor: one inbox, one owner of the scheduler's books, and effects carried out.

Owns: the inbox, the claims of those who wait, the one transition under way, the public face of the room.
Must not decide: the scheduler does. Must not do: the transition does.

Rule 1: only `_handle` touches the scheduler; everything else posts a move.
Rule 2: `_handle` never waits. What takes time is a task, and its end is a move.
Rule 3: leaving a lease is a post, not a wait: no cancellation can come between.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from copy import copy
from itertools import chain, repeat

from sparkdash.catalog import Catalog
from sparkdash.domain.container import PullProgress, Stranger
from sparkdash.domain.engine import Engine, EngineState
from sparkdash.domain.event import Fact, Level
from sparkdash.domain.lease import Request
from sparkdash.domain.need import Need
from sparkdash.domain.profile import AUTO, EngineKind, Profile
from sparkdash.domain.swap import Plan, SwapCause
from sparkdash.engines import registry
from sparkdash.engines.adapter import EngineAdapter
from sparkdash.errors import DaemonError, ProfileError, SparkdashError, UpstreamError
from sparkdash.host.guard import Guard
from sparkdash.host.reader import HostReader
from sparkdash.host.runtime import Runtime
from sparkdash.settings import Settings
from sparkdash.store import Store
from sparkdash.supervisor import guard_words, refusals, strangers
from sparkdash.supervisor.adopt import Adoption, look, remove, take
from sparkdash.supervisor.alarm import Alarm
from sparkdash.supervisor.books import failure_of
from sparkdash.supervisor.claim import Claim, Claims, Lease
from sparkdash.supervisor.clock import Clock, SystemClock
from sparkdash.supervisor.fit import Choice
from sparkdash.supervisor.footprint import Footprints
from sparkdash.supervisor.moves import (
    Adopted,
    Arrive,
    BeginSwap,
    Cancel,
    CancelSwap,
    CatalogRead,
    Cut,
    Decline,
    Effect,
    EngineDied,
    Evict,
    Grant,
    Leave,
    Move,
    Patience,
    PolicyRead,
    Preload,
    Refuse,
    Release,
    Stop,
    SwapCancelled,
    SwapDone,
    SwapFailed,
    Tick,
    Use,
    Wait,
)
from sparkdash.supervisor.parking import Parking
from sparkdash.supervisor.planner import Planner
from sparkdash.supervisor.remotes import Remotes, not_started
from sparkdash.supervisor.scheduler import Scheduler
from sparkdash.supervisor.swaps import Swaps
from sparkdash.supervisor.tools import furnish
from sparkdash.supervisor.waiters import Waiter, Waiters
from sparkdash.supervisor.watch import Watch
from sparkdash.upstream import Upstream

LOOK_AGAIN_S = (5.0, 10.0, 20.0, 60.0)
"""Pauses before a runtime that did not tell what is there is asked again; the last one repeats."""


class Supervisor:
    """Which engine runs and who may use it. `run()` it, then lease."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        runtime: Runtime,
        upstream: Upstream,
        reader: HostReader,
        publish: Callable[[Fact], object],
        settings: Settings,
        owner: str,
        store: Store | None = None,
        guard: Guard | None = None,
        clock: Clock | None = None,
        on_needs: Callable[[], object] = lambda: None,
        adapter: Callable[[EngineKind], EngineAdapter] = registry.adapter,
    ) -> None:
        clock = clock or SystemClock()
        self.catalog = catalog
        self._tools = furnish(
            runtime=runtime,
            upstream=upstream,
            reader=reader,
            publish=publish,
            settings=settings,
            owner=owner,
            store=store,
            guard=guard,
            clock=clock,
            adapter=adapter,
        )
        self._profiles = dict(catalog.profiles)
        """What the scheduler knows; `catalog` may be a move ahead."""
        self._inbox: asyncio.Queue[tuple[Move | Adoption, Waiter | None]] = asyncio.Queue()
        self._claims = Claims(self._lease_of)
        self._watch = Watch(self._tools, self._post)
        self._on_needs = on_needs
        self._footprints = Footprints(self._tools, store, on_needs)
        self._swaps = Swaps(self._tools, store, self._post, self._watch.end, self._footprints)
        self._planner = Planner(self._tools, lambda: self._profiles, self._swaps.expected_s)
        self._scheduler = Scheduler(
            self._planner.known(catalog),
            queue_limit=settings.queue_limit,
            scales=self._planner,
            patience=_patience(settings),
        )
        self._parking = Parking(self._scheduler.breaker, self._tools.books, store)
        self._remotes = Remotes(settings, clock.now)
        self._alarm = Alarm(clock, lambda: self._post(Tick()))
        self._group: asyncio.TaskGroup | None = None
        self._waiters = Waiters()
        self._adopted = asyncio.Event()
        self._idle = asyncio.Event()
        self._over = False

    # The public face.

    @property
    def engines(self) -> dict[str, Engine]:
        """Every engine by profile, as of now; failed ones included."""
        return dict(self._tools.books.engines)

    async def run(self) -> None:
        """The actor, until cancelled. Whatever else ends it is a fault of ours and should end the daemon."""
        try:
            self._tools.wards.open()
            self._parking.recall(self.catalog.profiles)
            async with asyncio.TaskGroup() as self._group:
                self._group.create_task(self._read_weights(), name="weights")
                await self._adopt()
                while True:
                    self._rest()
                    self._handle(*await self._inbox.get())
                    while not self._inbox.empty():  # figures are told once for all that has come
                        self._handle(*self._inbox.get_nowait())
                    self._refresh()
        finally:
            self._end()
            self._tools.wards.close()

    async def adopted(self) -> None:
        """Wait until engines of an earlier daemon have been looked for."""
        await self._adopted.wait()

    async def settled(self) -> None:
        """Wait until nothing is under way: no move in the inbox, no swap. For tests."""
        await self._idle.wait()

    @asynccontextmanager
    async def lease(
        self, name: str, *, request_id: str, on_wait: Callable[[int], object], batch: bool = False
    ) -> AsyncIterator[Lease]:
        """Wait for the engine that serves `name`, and hold it while the context lasts.

        `name` is what the client wrote: a profile, an alias, or `auto`; a remote one is granted at once. `on_wait(position)` is called whenever the
        place in the queue changes. `batch`: it lets requests that somebody waits for go first. An UpstreamError that
        leaves the context has the engine looked at before it goes on, so that a second try finds a living one.

        Raises:
            AdmissionError: unknown, cannot run, queue full, too many at once, stopped or cancelled meanwhile, or it
                does not fit.
            EngineError: it did not come up.
            HostError: the box lacks something that it needs.
        """
        profile = None if name == AUTO else self.catalog.find(name)
        if self._over:
            raise _shutting_down()
        claim = self._claims.new(request_id, on_wait)
        if profile is not None and profile.engine is EngineKind.REMOTE:
            try:
                with self._remotes.lease(profile, claim.lost) as lease:
                    yield lease
            finally:
                self._claims.leave(claim)
            return
        self._post(Arrive(claim.ticket, profile.name if profile else None, batch))
        try:
            lease = await claim.granted
            try:
                yield lease
            except UpstreamError:
                self._leave(claim)
                if killed := self._tools.wards.reason(lease.engine.container):
                    raise copy(killed) from None  # that is why it broke off, and no second try would help
                await self._watch.confirm(lease.profile, lease.engine)
                raise
        finally:
            self._leave(claim)

    async def use(self, name: str, *, cause: SwapCause) -> Plan:
        """Make a profile resident; returns what that means before it is done. Also clears a remembered failure.

        Raises:
            AdmissionError: unknown, it cannot run here, or it is known not to fit.
        """
        profile, plan, choice = await self._planned(name)
        if choice is not None and (error := self._scheduler.refusal(profile.name, choice)):
            raise error
        self._post(Use(profile.name, cause))
        return plan

    async def plan(self, name: str) -> Plan:
        """What `use` would do, and why. Raises AdmissionError when it is unknown or cannot run here."""
        return (await self._planned(name))[1]

    async def stop(self, name: str | None) -> None:
        """Stop one profile's engine, or all; returns when it is gone. Requests that wait for it are refused.

        Raises:
            AdmissionError: unknown profile.
            HostError: it would not stop.
        """
        profile = name
        if name is not None and name not in self._tools.books.engines:
            profile = self._here(name).name
        await self._ask(Stop(profile))

    async def cancel(self) -> None:
        """Give up the swap under way; returns when what it had begun is cleaned away. Nothing happens without one."""
        await self._ask(Cancel())

    def need(self, profile: Profile) -> Need:
        """What a launch of it takes, as far as it is known now; `on_needs` is called when more is."""
        return self._tools.needs(profile)

    def served(self, request: Request) -> None:
        """A request is over, as the gateway recorded it. After a long prompt the engine is weighed again, in the background."""
        if self._group and not self._over and self._footprints.worth_a_look(request):
            self._group.create_task(self._footprints.served(request), name=f"weigh {request.profile}")

    async def release(self, name: str | None) -> None:
        """Let a parked profile, or all of them, be tried again. Raises AdmissionError: unknown profile."""
        self._post(Release(None if name is None else self.catalog.find(name).name))

    def replace_catalog(self, catalog: Catalog) -> None:
        """The profiles were read again. Engines that run go on, also when their profile changed or went away."""
        self.catalog = catalog
        self._post(CatalogRead(self._planner.known(catalog)))
        if self._group and not self._over:
            self._group.create_task(self._read_weights(), name="weights")

    @property
    def settings(self) -> Settings:
        """Those that hold now."""
        return self._tools.settings

    def replace_settings(self, settings: Settings) -> None:
        """The owner's file was edited. Holds from the next decision on; what is under way goes on by what it began with,
        where that was read already."""
        self._tools.settings = settings
        self._tools.wards.govern(settings)
        self._post(PolicyRead(_patience(settings), settings.queue_limit))
        self.replace_catalog(self.catalog)  # policies are the profiles'

    async def pids(self, profile: str) -> set[int]:
        """Host process ids of this profile's engine; empty when it has none."""
        engine = self._tools.books.engines.get(profile)
        return await self._tools.runtime.pids(engine.container) if engine and engine.container else set()

    async def strangers(self) -> dict[Stranger, set[int]]:
        """Containers that are not ours and take of what our engines need, with their host process ids. Raises HostError."""
        return await strangers.look(self._tools)

    def logs(self, name: str, *, tail: int | None = None, follow: bool = False) -> AsyncIterator[str]:
        """The engine's log: from its container while there is one, else the last lines that it left.

        Raises:
            AdmissionError: unknown profile.
        """
        profile = name if name in self._tools.books.engines else self.catalog.find(name).name
        return self._tools.logbook.read(profile, tail=tail, follow=follow)

    async def pull(self, name: str) -> AsyncIterator[PullProgress]:
        """Fetch a profile's image. Raises AdmissionError, ProfileError (it has none) and HostError."""
        profile = self.catalog.find(name)
        if error := refusals.nothing_to_pull(profile, containerised=self._tools.runtime.containerised):
            raise error
        if profile.image is None:
            raise ProfileError(
                f"Profile {profile.name} names no image.", code="image_missing", hint="Add `image:` to it."
            )
        async for step in self._tools.runtime.pull(profile.image):
            yield step
        await self._tools.needs.read([profile])
        self._post(Release(profile.name))

    def retire(self, *, cut: bool) -> None:
        """The daemon ends: refuse whoever waits or comes; with `cut` also whoever is served. Idempotent."""
        self._over = True
        self._claims.retire(_shutting_down(), cut=cut)

    async def close(self, *, stop_engines: bool = False) -> None:
        """After `run` has ended. Engines are left for the next daemon to adopt, unless told otherwise."""
        if not stop_engines:
            return
        grace = self._tools.settings.stop_grace_s
        names = [engine.container for engine in self.engines.values() if engine.container]
        await asyncio.gather(*(self._tools.runtime.stop(name, grace) for name in names), return_exceptions=True)

    # The actor.

    def _post(self, move: Move, waiter: Waiter | None = None) -> None:
        self._idle.clear()
        self._inbox.put_nowait((move, waiter))

    async def _ask(self, move: Move) -> None:
        if self._over:
            raise _shutting_down()
        waiter = asyncio.get_running_loop().create_future()
        self._post(move, waiter)
        await waiter

    def _leave(self, claim: Claim) -> None:
        if self._claims.leave(claim):
            self._post(Leave(claim.ticket))

    async def _adopt(self) -> None:
        try:
            self._take_over(await look(self._tools, self.catalog))
            self._refresh()
        except SparkdashError as error:
            text = f"Engines that may run already are not known yet: {error.text()}"
            self._tools.books.notice(Level.ERROR, error.code, text)
            self._running().create_task(self._look_again(), name="look again")
        self._running().create_task(strangers.tell(self._tools), name="tell of strangers")
        self._post(Preload(tuple(self._preloads())))
        self._adopted.set()

    async def _look_again(self) -> None:
        """The runtime did not tell what is there when we began: what an earlier daemon left holds memory, and nobody knows it."""
        for pause_s in chain(LOOK_AGAIN_S, repeat(LOOK_AGAIN_S[-1])):
            await self._tools.clock.sleep(pause_s)
            with suppress(SparkdashError):
                found = await look(self._tools, self.catalog)
                self._idle.clear()
                self._inbox.put_nowait((found, None))
                return

    def _take_over(self, adoption: Adoption) -> None:
        """Make what an earlier daemon left ours; what has been started in its place meanwhile has replaced it."""
        swap, books = self._scheduler.records.swap, self._tools.books
        for found in adoption.ready:
            name = found.profile.name
            if name not in self._scheduler.records.residents and not (swap and swap.target == name):
                take(self._tools, found)
                self._handle(Adopted(name, found.profile.fingerprint), None)
                self._begin_watch(found.profile)
        if (late := adoption.loading) is None:
            return
        if swap is None and late.profile.name not in self._scheduler.records.residents:
            self._swaps.resumes = late
            self._handle(Adopted(late.profile.name, late.profile.fingerprint, ready=False), None)
        elif late.container.name not in {engine.container for engine in books.engines.values()}:
            work = remove(self._tools, late.container, "another engine is being started")
            self._running().create_task(work, name=f"remove {late.container.name}")

    async def _read_weights(self) -> None:
        await self._tools.needs.read(self.catalog.profiles.values())
        self._on_needs()

    def _preloads(self) -> Iterator[str]:
        for name in self._tools.settings.preload:
            try:
                yield self._here(name).name
            except SparkdashError as error:
                self._tools.books.notice(Level.WARNING, error.code, f"`preload` in config.toml: {error.text()}")

    def _rest(self) -> None:
        if self._inbox.empty() and self._scheduler.records.swap is None:
            self._idle.set()

    def _handle(self, move: Move | Adoption, waiter: Waiter | None) -> None:
        if isinstance(move, Adoption):
            self._take_over(move)
            return
        if waiter is not None:
            self._waiters.add(move, waiter)
        self._note(move)
        for effect in self._scheduler.handle(move, self._tools.clock.monotonic()):
            self._carry_out(effect)

    def _note(self, move: Move) -> None:
        """What people see of a move, before its effects."""
        books = self._tools.books
        match move:
            case SwapDone() | SwapFailed() | SwapCancelled():
                self._swap_over(move)
            case EngineDied(profile=name, error=error):
                if started := books.started.get(name):  # else it died while it was being stopped, and is gone
                    books.fail(started, failure_of(error))
                    if error.code != guard_words.CODE:  # the guard's kills are told when they happen
                        books.notice(Level.ERROR, error.code, error.text(), name)
            case Stop(profile=name):
                for engine in self.engines.values():
                    if name in (None, engine.profile) and engine.profile not in self._scheduler.records.residents:
                        self._forget_failed(engine)
            case CatalogRead():
                known = self._profiles
                self._profiles = {
                    name: known[name] if known.get(name) == read else read
                    for name, read in self.catalog.profiles.items()
                }  # the same objects, so that a lease tells at a glance that nothing was edited

    def _swap_over(self, move: SwapDone | SwapFailed | SwapCancelled) -> None:
        if runs := self._swaps.end(move):
            self._begin_watch(runs)
        self._waiters.settle(Cancel)
        swap = self._scheduler.records.swap
        if isinstance(move, SwapFailed) and swap and swap.target is None:
            self._waiters.settle(Stop, move.error)

    def _forget_failed(self, engine: Engine) -> None:
        if engine.state is EngineState.FAILED:
            self._tools.books.drop(engine.profile)

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Grant() | Wait() | Refuse() | Cut():
                self._claims.carry_out(effect)
            case Decline(profile=name, error=error):
                self._tools.books.notice(Level.WARNING, error.code, error.text(), name)
            case BeginSwap():
                target = self._profiles[effect.target] if effect.target is not None else None
                self._swaps.begin(self._running(), effect, target)
            case Evict():
                self._swaps.drained()
            case CancelSwap():
                self._swaps.cancel()

    def _lease_of(self, name: str, claim: Claim) -> Lease:
        engine, started = self._tools.books.engines[name], self._tools.books.started[name]
        now = self._profiles.get(name, started)
        return Lease(
            # request defaults may be newer than the engine; what it was started with may not
            profile=now if now is started or now.fingerprint == started.fingerprint else started,
            engine=engine,
            url=engine.url or "",
            names=tuple(self._tools.adapter(engine.kind).served_names(started)),
            lost=claim.lost,
        )

    def _begin_watch(self, profile: Profile) -> None:
        self._watch.begin(self._running(), profile, self._tools.books.engines[profile.name])

    def _running(self) -> asyncio.TaskGroup:
        assert self._group  # noqa: S101 - moves are handled inside run
        return self._group

    def _refresh(self) -> None:
        """What follows from the scheduler's books: figures, the next alarm, those who wait for its rest."""
        self._alarm.set(self._running(), self._scheduler.due)
        books, records = self._tools.books, self._scheduler.records
        books.waiting(records.waiting_for(records.swap.target) if records.swap else 0)
        for name in list(books.engines):
            books.busy(name, records.in_flight(name))
        self._tools.wards.refresh()
        self._parking.keep()
        if not self._scheduler.stopping:
            self._waiters.settle(Stop)
        if records.swap is None:
            self._waiters.settle(Cancel)

    def _end(self) -> None:
        self.retire(cut=True)
        while not self._inbox.empty():
            move, waiter = self._inbox.get_nowait()
            if waiter is not None and not isinstance(move, Adoption):
                self._waiters.add(move, waiter)
        self._waiters.end(_shutting_down())

    def _here(self, name: str) -> Profile:
        """Raises AdmissionError: unknown, or a service elsewhere."""
        profile = self.catalog.find(name)
        if profile.engine is EngineKind.REMOTE:
            raise not_started(profile)
        return profile

    async def _planned(self, name: str) -> tuple[Profile, Plan, Choice | None]:
        profile = self._here(name)
        if error := refusals.of(profile.name, self._planner.card(profile)):
            raise error
        await self._tools.needs.read([profile])  # the weights may have come since
        runs = self._scheduler.records.runs(profile.name)
        choice = self._scheduler.choice(profile.name, self._tools.clock.monotonic())
        plan = self._planner.plan(profile, choice, self._scheduler.records.residents, runs=runs)
        return profile, plan, None if runs else choice


def _patience(settings: Settings) -> Patience:
    return Patience(settings.min_dwell_s, settings.max_wait_s)


def _shutting_down() -> DaemonError:
    return DaemonError("sparkdash is shutting down.", code="shutting_down", retry_after=10.0)
