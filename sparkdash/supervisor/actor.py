"""Actor: one inbox, one owner of the scheduler's records, and effects carried out.

Rule 1: only `_handle` touches the scheduler; everything else posts a move. But a request whose coming or going changes
    no decision is booked at once while the inbox is empty: nearly all of them, and none of those waits for a task.
Rule 2: `_handle` never waits. What takes time is a task, and its end is a move.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Iterable

from sparkdash.catalog import Catalog
from sparkdash.domain.engine import EngineState
from sparkdash.domain.event import DefaultChanged, Level
from sparkdash.domain.profile import Profile
from sparkdash.domain.swap import DefaultProfile, Plan
from sparkdash.errors import SparkdashError
from sparkdash.settings import Settings
from sparkdash.supervisor.decide import moves, refusals
from sparkdash.supervisor.decide.breaker import ParkedFailure
from sparkdash.supervisor.decide.scheduler import Scheduler
from sparkdash.supervisor.incidents import Incidents
from sparkdash.supervisor.leasing import Leasing
from sparkdash.supervisor.planner import Planner
from sparkdash.supervisor.repair import EngineWatch
from sparkdash.supervisor.state import guarded
from sparkdash.supervisor.state.clock import Clock
from sparkdash.supervisor.state.registry import failure_of
from sparkdash.supervisor.swap.adopt import Adoption, Takeover
from sparkdash.supervisor.swap.attach import Attachments
from sparkdash.supervisor.swap.tasks import SwapTasks
from sparkdash.supervisor.tools import Tools

COUNTS_DELAY_S = 0.02
"""Seconds by which a new count may be published late: each publication is a new Engine and an event for everybody."""
Waiter = asyncio.Future[None]


def patience_of(settings: Settings) -> moves.Patience:
    return moves.Patience(settings.min_dwell_s, settings.max_wait_s, settings.min_dwell_share)


class Actor:
    """`run` it in a task group, then post moves."""

    def __init__(self, tools: Tools) -> None:
        settings = tools.settings
        self._tools = tools
        self._profiles = dict(tools.catalog.profiles)
        """Profiles that the scheduler knows; the catalog may be a move ahead."""
        self._read: deque[Catalog] = deque()
        self._inbox: deque[tuple[moves.Move | Adoption, Waiter | None]] = deque()
        self._news = asyncio.Event()
        self.idle = asyncio.Event()
        """Set while no move is in the inbox, no swap is under way and nothing is to be published."""
        self.incidents = Incidents(tools.registry, tools.store, tools.clock)
        self._watch = EngineWatch(tools, self.incidents, self.post)
        self.leasing = Leasing(tools, self._profiles, self._watch, arrive=self.arrive, leave=self.leave)
        self.swaps = SwapTasks(tools, self.post, self._unwatch)
        self._planner = Planner(tools, lambda: self._profiles, self.swaps.expected_s)
        self._counts_changed = asyncio.Event()
        self._scheduler = Scheduler(
            self._planner.known(tools.catalog),
            queue_limit=settings.queue_limit,
            facts=self._planner,
            patience=patience_of(settings),
        )
        self._attachments = Attachments(tools)
        self._alarm = DecisionTimer(tools.clock, lambda: self.post(moves.Tick()))
        self._waiters: defaultdict[type[moves.Move], list[Waiter]] = defaultdict(list)
        self.takeover = Takeover(
            tools=tools,
            records=self._scheduler.records,
            swaps=self.swaps,
            stuck=self.incidents.interrupted,
            adopted=self._adopted_engine,
            tell=self.post,
        )
        self._group: asyncio.TaskGroup | None = None
        self.adopted = asyncio.Event()

    async def run(self, group: asyncio.TaskGroup, preloads: Iterable[str]) -> None:
        """Handle moves until cancelled; slow work becomes tasks of `group`, and `preloads` come first."""
        self._group = group
        await self._adopt(preloads)
        group.create_task(self._tell_counts(), name="counts")
        while True:
            if not (self._inbox or self._counts_changed.is_set()) and not self._scheduler.records.swaps:
                self.idle.set()
            await self._news.wait()
            while self._inbox:
                self._handle(*self._inbox.popleft())
            self._news.clear()
            self._refresh()  # counts are published once for all moves in the inbox

    def recall(self) -> None:
        """Take over incidents of an earlier daemon, and parked profiles whose launch was not edited since."""
        kept = self._tools.store.parked if self._tools.store else {}
        for name, parked in kept.items():
            profile = self._tools.catalog.profiles.get(name)
            if profile is not None and profile.fingerprint == parked.fingerprint:
                failure = ParkedFailure(parked.failure.error(), parked.failures, parked.fingerprint)
                self._scheduler.breaker.recall(name, failure)
        self._tools.registry.recall(kept)
        self._keep_parked()
        self.incidents.recall()

    def end(self) -> None:
        """After `run`: nothing that was ordered is carried out any more."""
        self.leasing.retire(cut=True)
        while self._inbox:
            move, waiter = self._inbox.popleft()
            if waiter is not None and not isinstance(move, Adoption):
                self._waiters[type(move)].append(waiter)
        for kind in list(self._waiters):
            self._settle(kind, refusals.shutting_down())

    def post(self, move: moves.Move | Adoption, waiter: Waiter | None = None) -> None:
        self._inbox.append((move, waiter))
        self.idle.clear()
        self._news.set()

    def arrive(self, move: moves.Arrive, now: float) -> str | None:
        """Return the profile that a request is granted at once, as nearly all are; None: it waits for the effects."""
        if not self._inbox:
            granted = self._scheduler.grant_at_once(move, now)
            if granted is not None:
                if not self._counts_changed.is_set():
                    self._note_count()
                return granted
        self.post(move)
        return None

    def leave(self, ticket: str, now: float) -> None:
        if self._inbox or not self._scheduler.end_at_once(ticket, now):
            self.post(moves.Leave(ticket))
        elif not self._counts_changed.is_set():
            self._note_count()

    async def ask(self, move: moves.Move) -> None:
        """Post the move; return when its orders are carried out. Raises DaemonError when the daemon ends."""
        if self.leasing.over:
            raise refusals.shutting_down()
        waiter = asyncio.get_running_loop().create_future()
        self.post(move, waiter)
        await waiter

    async def plan(self, profile: Profile) -> tuple[Plan, SparkdashError | None]:
        return await self._planner.preview(profile, self._scheduler)

    def replace_catalog(self, catalog: Catalog) -> None:
        self._tools.catalog = catalog
        self._read.append(catalog)
        self.post(moves.CatalogRead(self._planner.known(catalog)))
        if not self.leasing.over:
            self.takeover.catalog_read()

    def replace_settings(self, settings: Settings) -> None:
        """Hand the owner's new limits to the scheduler, and publish the default profile; an unknown one is told of."""
        default = None
        if settings.default is not None:
            try:
                profile = self._tools.catalog.find(settings.default)
                default = DefaultProfile(profile=profile.name, after_s=settings.default_after_s)
            except SparkdashError as error:
                self._tools.registry.notice(Level.WARNING, error.code, f"`default` in config.toml: {error.text()}")
        self._tools.publish(DefaultChanged(default=default))
        self.post(moves.PolicyRead(patience_of(settings), settings.queue_limit, default))

    async def _adopt(self, preloads: Iterable[str]) -> None:
        for profile in await self._attachments.take_back():
            self._handle(moves.Adopted(profile.name, profile.fingerprint), None)
            self._begin_watch(profile)
        if await self.takeover.look(self._running()):
            self._refresh()
        if self._tools.settings.default is not None:
            self.replace_settings(self._tools.settings)
        self.post(moves.Preload(tuple(preloads)))
        self.adopted.set()

    def _adopted_engine(self, move: moves.Adopted, profile: Profile) -> None:
        self._handle(move, None)
        if move.ready:
            self._begin_watch(profile)

    def _handle(self, move: moves.Move | Adoption, waiter: Waiter | None) -> None:
        if isinstance(move, Adoption):
            self.takeover.take_over(move)
            return
        if waiter is not None:
            self._waiters[type(move)].append(waiter)
        self._note(move)
        for effect in self._scheduler.handle(move, self._tools.clock.monotonic()):
            self._carry_out(effect)

    def _note(self, move: moves.Move) -> None:
        """Publish what people see of a move, before its effects."""
        match move:
            case moves.Arrive(profile=str(name)) if self._scheduler.awaits_server(name, self._tools.clock.monotonic()):
                self._attachments.ask_again(
                    self._running(), self._profiles[name], lambda: self.post(moves.Release(name))
                )
            case moves.Arrive() | moves.Leave():
                pass  # most moves are these, and they change the counts
            case moves.SwapDone() | moves.SwapFailed() | moves.SwapCancelled():
                self._swap_over(move)
            case moves.Copied(target=target):
                self.swaps.copied(target)
            case moves.EngineDied(profile=name, error=error):
                self._publish_death(name, error)
            case moves.Stop(profile=name):
                self._publish_stop(name)
            case moves.CatalogRead(profiles=profiles):
                self._take_profiles(self._read.popleft())
                for failed in self._failed_engines():
                    if failed not in profiles:  # nobody can start or stop it
                        self._publish_stop(failed)

    def _publish_death(self, name: str, error: SparkdashError) -> None:
        self.incidents.ends(name)
        registry = self._tools.registry
        if started := registry.started.get(name):  # otherwise it died during its stop, and is gone
            registry.fail(started, failure_of(error))
            if error.code not in guarded.CODES:  # the guard's kills have a notice already
                registry.notice(Level.ERROR, error.code, error.text(), name)

    def _publish_stop(self, name: str | None) -> None:
        """Close the incidents, and drop the failed engines, of what a person stops; None: of every profile."""
        self.incidents.stopped(name)
        for failed in self._failed_engines():
            if name in (None, failed):
                self._tools.registry.drop(failed)

    def _failed_engines(self) -> list[str]:
        engines, residents = self._tools.registry.engines.values(), self._scheduler.records.residents
        return [e.profile for e in engines if e.state is EngineState.FAILED and e.profile not in residents]

    def _take_profiles(self, catalog: Catalog) -> None:
        """Keep the objects of unchanged profiles, so that a lease sees at a glance that nothing was edited."""
        known, read = self._profiles, catalog.profiles
        self._profiles = {name: known[name] if known.get(name) == new else new for name, new in read.items()}
        self.leasing.profiles = self._profiles

    def _swap_over(self, move: moves.SwapDone | moves.SwapFailed | moves.SwapCancelled) -> None:
        if runs := self.swaps.end(move):
            self._begin_watch(runs)
        if move.target is not None and not isinstance(move, moves.SwapDone):
            why = move.error.message if isinstance(move, moves.SwapFailed) else None
            self.incidents.not_started(move.target, why)
        elif isinstance(move, moves.SwapFailed):
            self._settle(moves.Stop, move.error)

    def _carry_out(self, effect: moves.Effect) -> None:
        match effect:
            case moves.Grant() | moves.Wait() | moves.Refuse() | moves.Cut():
                self.leasing.carry_out(effect)
            case moves.Decline(profile=name, error=error):
                self._tools.registry.notice(Level.WARNING, error.code, error.text(), name)
            case moves.BeginSwap():
                known = self.swaps.former if effect.as_before else self._profiles
                comes = known[effect.target].on(len(effect.nodes)) if effect.target is not None else None
                self.swaps.begin(self._running(), effect, comes)
            case moves.Evict(target=target):
                self.swaps.drained(target)
            case moves.CancelSwap(target=target):
                self.swaps.cancel(target)

    def _unwatch(self, name: str) -> None:
        """From now on its end is no accident: a swap ends it."""
        self._watch.end(name)
        swaps = self._scheduler.records.swaps
        self.incidents.left(name, next((target for target, swap in swaps.items() if name in swap.evict), None))

    def _begin_watch(self, profile: Profile) -> None:
        self.incidents.serves(profile.name)
        self._watch.begin(self._running(), profile, self._tools.registry.engines[profile.name])

    def _running(self) -> asyncio.TaskGroup:
        assert self._group  # noqa: S101 - moves are handled inside run
        return self._group

    def _refresh(self) -> None:
        """Publish figures, set the next timer and settle waiters, as the scheduler's records now say."""
        self._alarm.set(self._running(), self._scheduler.due)
        records = self._scheduler.records
        self.swaps.waiting(records.waiting_for, records.in_flight)
        self._publish_counts()
        self._tools.guarded.refresh()
        self._keep_parked()
        self.incidents.settle(self._tools.registry.parked, self._scheduler.expects)
        self._attachments.keep()
        if not self._scheduler.stopping:
            self._settle(moves.Stop)
        if not self._scheduler.cancelling:
            self._settle(moves.Cancel)

    def _keep_parked(self) -> None:
        for name, parked in self._tools.registry.park(self._scheduler.breaker.parked).items():
            if self._tools.store is not None:
                self._tools.store.record_parked(name, parked)

    def _settle(self, kind: type[moves.Move], error: SparkdashError | None = None) -> None:
        """Wake those whose orders of this kind are carried out, or will not be."""
        for waiter in self._waiters.pop(kind, ()):
            if not waiter.done():
                waiter.set_result(None) if error is None else waiter.set_exception(error)

    def _note_count(self) -> None:
        """Note that a count of requests has changed, which is published after a delay."""
        self.idle.clear()
        self._counts_changed.set()

    async def _tell_counts(self) -> None:
        while True:
            await self._counts_changed.wait()
            await self._tools.clock.sleep(COUNTS_DELAY_S)
            self._counts_changed.clear()
            self._news.set()

    def _publish_counts(self) -> None:
        registry, records = self._tools.registry, self._scheduler.records
        for name in list(registry.engines):
            in_flight, resident = records.in_flight(name), records.residents.get(name)
            registry.able(name, self._planner.tasks(name), self._planner.most_steps_s(name))
            registry.busy(name, in_flight, resident.asked_at if resident else {})
            self._watch.used(name, now=in_flight > 0)


class DecisionTimer:
    """Calls `ring` once at the moment when time itself changes a decision."""

    def __init__(self, clock: Clock, ring: Callable[[], None]) -> None:
        self._clock = clock
        self._ring = ring
        self._at: float | None = None
        self._task: asyncio.Task[None] | None = None

    def set(self, group: asyncio.TaskGroup, at: float | None) -> None:
        if at == self._at:
            return
        if self._task is not None:
            self._task.cancel()
        self._at = at
        self._task = group.create_task(self._sleep(at), name="alarm") if at is not None else None

    async def _sleep(self, at: float) -> None:
        await self._clock.sleep(max(0.0, at - self._clock.monotonic()))
        self._at = self._task = None
        self._ring()
