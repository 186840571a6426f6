"""Actor: one inbox, one owner of the scheduler's records, and effects carried out.

Owns: the inbox, the swaps under way, those who wait for an order, what an earlier daemon left. Must not decide: the
scheduler does. Must not do: the transition does.

Rule 1: only `_handle` touches the scheduler; everything else posts a move. But a request whose coming or going changes
    no decision is booked at once while the inbox is empty: nearly all of them, and none of those waits for a task.
Rule 2: `_handle` never waits. What takes time is a task, and its end is a move.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable

from sparkdash.catalog import Catalog
from sparkdash.domain.event import Level
from sparkdash.domain.profile import Profile
from sparkdash.domain.swap import Plan, SetPlan
from sparkdash.errors import SparkdashError
from sparkdash.settings import Settings
from sparkdash.store import Store
from sparkdash.supervisor.alarm import DecisionTimer
from sparkdash.supervisor.external import strangers
from sparkdash.supervisor.external.adopt import Adoption
from sparkdash.supervisor.external.attachments import Attachments
from sparkdash.supervisor.external.takeover import Takeover
from sparkdash.supervisor.leasing import Leasing
from sparkdash.supervisor.memory.footprint import Footprints
from sparkdash.supervisor.model_sets import SetPlanner, set_moves, set_refusal
from sparkdash.supervisor.move_notes import forget_failures, publish_death, publish_stop
from sparkdash.supervisor.owner_policy import policy_of
from sparkdash.supervisor.parking import Parking
from sparkdash.supervisor.planner import Planner
from sparkdash.supervisor.repair.incidents import Incidents
from sparkdash.supervisor.repair.watch import EngineWatch
from sparkdash.supervisor.request_counts import RequestCounts
from sparkdash.supervisor.scheduling import refusals
from sparkdash.supervisor.scheduling.moves import (
    Adopted,
    Arrive,
    BeginSwap,
    Cancel,
    CancelSwap,
    CatalogRead,
    Copied,
    Cut,
    Decline,
    Effect,
    EngineDied,
    Evict,
    Grant,
    Leave,
    Move,
    Patience,
    Preload,
    Refuse,
    Stop,
    SwapCancelled,
    SwapDone,
    SwapFailed,
    Tick,
    Wait,
)
from sparkdash.supervisor.scheduling.scheduler import Scheduler
from sparkdash.supervisor.swap.tasks import SwapTasks
from sparkdash.supervisor.tools import Tools
from sparkdash.supervisor.waiters import Waiter, Waiters


class Actor:
    """`run` it in a task group, then post moves."""

    def __init__(self, tools: Tools, catalog: Catalog, store: Store | None, footprints: Footprints) -> None:
        settings = tools.settings
        self.catalog = catalog
        self._tools = tools
        self._profiles = dict(catalog.profiles)
        """Profiles that the scheduler knows; `catalog` may be a move ahead."""
        self._read: deque[Catalog] = deque()
        """Catalogs whose moves are in the inbox."""
        self._inbox: deque[tuple[Move | Adoption, Waiter | None]] = deque()
        self._news = asyncio.Event()
        """Set while there is a move in the inbox, or figures to tell."""
        self.idle = asyncio.Event()
        """Set while no move is in the inbox, no swap is under way and nothing is to be published."""
        self.incidents = Incidents(tools.books, store, tools.clock)
        self._watch = EngineWatch(tools, self.incidents, self.post)
        self.leasing = Leasing(tools, lambda: self._profiles, self, self._watch)
        self._swaps = SwapTasks(tools, store, self.post, self._unwatch, footprints)
        self._planner = Planner(tools, lambda: self._profiles, self._swaps.expected_s)
        self._counts = RequestCounts(tools, self._planner, self._watch, idle=self.idle, news=self._news)
        self._scheduler = Scheduler(
            self._planner.known(catalog),
            queue_limit=settings.queue_limit,
            facts=self._planner,
            patience=Patience(settings.min_dwell_s, settings.max_wait_s),
        )
        self._parking = Parking(self._scheduler.breaker, tools.books, store)
        self._attachments = Attachments(tools, store)
        self._alarm = DecisionTimer(tools.clock, lambda: self.post(Tick()))
        self._waiters = Waiters()
        self.takeover = Takeover(
            tools,
            lambda: self.catalog,
            records=self._scheduler.records,
            swaps=self._swaps,
            stuck=self.incidents.interrupted,
            adopted=self._adopted_engine,
            tell=self._put,
        )
        self._group: asyncio.TaskGroup | None = None
        self.adopted = asyncio.Event()
        """Engines of an earlier daemon have been looked for."""

    async def run(self, group: asyncio.TaskGroup, preloads: Iterable[str]) -> None:
        """Handle moves until cancelled; slow work becomes tasks of `group`. `preloads`: profiles to run from the
        beginning.
        """
        self._group = group
        await self._adopt(preloads)
        group.create_task(self._counts.run(), name="counts")
        while True:
            self._rest()
            await self._news.wait()
            while self._inbox:
                self._handle(*self._inbox.popleft())
            self._news.clear()
            self._refresh()  # counts are published once for all moves in the inbox

    def recall(self) -> None:
        """Take over parked profiles and incidents of an earlier daemon."""
        self._parking.recall(self.catalog.profiles)
        self.incidents.recall()

    def end(self) -> None:
        """After `run`: nothing that was ordered is carried out any more."""
        self.leasing.retire(cut=True)
        while self._inbox:
            move, waiter = self._inbox.popleft()
            if waiter is not None and not isinstance(move, Adoption):
                self._waiters.add(move, waiter)
        self._waiters.end(refusals.shutting_down())

    def post(self, move: Move) -> None:
        """Queue a move; it is handled soon and in its turn."""
        self._put(move)

    def arrive(self, move: Arrive) -> str | None:
        """Return the profile that a request is granted at once, as nearly all are; None: it waits for the effects."""
        if not self._inbox:
            granted = self._scheduler.grant_at_once(move, self._tools.clock.monotonic())
            if granted is not None:
                self._counts.note()
                return granted
        self.post(move)
        return None

    def leave(self, ticket: str) -> None:
        """End the lease of a request."""
        if not self._inbox and self._scheduler.end_at_once(ticket, self._tools.clock.monotonic()):
            self._counts.note()
        else:
            self.post(Leave(ticket))

    async def ask(self, move: Move) -> None:
        """Post the move; return when its orders are carried out. Raises DaemonError when the daemon ends."""
        if self.leasing.over:
            raise refusals.shutting_down()
        waiter = asyncio.get_running_loop().create_future()
        self._put(move, waiter)
        await waiter

    async def plan(self, profile: Profile) -> tuple[Plan, SparkdashError | None]:
        """Describe what using the profile would do now, and why that would be refused; advice only.

        Raises:
            AdmissionError: it cannot run here.
        """
        return await self._planner.preview(profile, self._scheduler)

    async def use_set(self, name: str, members: tuple[Profile, ...], *, begin: bool) -> SetPlan:
        """Plan a set of profiles, and begin it. Raises AdmissionError: it cannot come."""
        await self._tools.needs.read(members)
        plan = SetPlanner(self._planner, self._scheduler.records).plan(name, members)
        if begin:
            if error := set_refusal(plan):
                raise error
            for move in set_moves(plan):
                self.post(move)
        return plan

    def extend_load(self, target: str) -> bool:
        """Let a load that stands still go on for its whole limit; return whether it stands still."""
        return self._swaps.extend(target)

    def replace_catalog(self, catalog: Catalog) -> None:
        """Replace the profiles, or the owner's policies for them."""
        self.catalog = catalog
        self._read.append(catalog)
        self.post(CatalogRead(self._planner.known(catalog)))
        if not self.leasing.over:
            self.takeover.catalog_read()

    def replace_settings(self, settings: Settings) -> None:
        """Hand the owner's new limits and patience to the scheduler."""
        self.post(policy_of(settings, self.catalog, self._tools.books))

    def _put(self, move: Move | Adoption, waiter: Waiter | None = None) -> None:
        self._inbox.append((move, waiter))
        self.idle.clear()
        self._news.set()

    async def _adopt(self, preloads: Iterable[str]) -> None:
        for profile in await self._attachments.take_back(self.catalog.profiles):
            self._handle(Adopted(profile.name, profile.fingerprint), None)
            self._begin_watch(profile)
        if await self.takeover.look(self._running()):
            self._refresh()
        self._running().create_task(strangers.report_strangers(self._tools), name="tell of strangers")
        if self._tools.settings.default is not None:
            self.replace_settings(self._tools.settings)
        self.post(Preload(tuple(preloads)))
        self.adopted.set()

    def _adopted_engine(self, move: Adopted, profile: Profile) -> None:
        self._handle(move, None)
        if move.ready:
            self._begin_watch(profile)

    def _rest(self) -> None:
        if not (self._inbox or self._counts.pending) and not self._scheduler.records.swaps:
            self.idle.set()

    def _handle(self, move: Move | Adoption, waiter: Waiter | None) -> None:
        if isinstance(move, Adoption):
            self.takeover.take_over(move)
            return
        if waiter is not None:
            self._waiters.add(move, waiter)
        self._note(move)
        for effect in self._scheduler.handle(move, self._tools.clock.monotonic()):
            self._carry_out(effect)

    def _note(self, move: Move) -> None:
        """Publish what people see of a move, before its effects."""
        match move:
            case Arrive() | Leave():
                pass  # most moves are these, and they change the counts
            case SwapDone() | SwapFailed() | SwapCancelled():
                self._swap_over(move)
            case Copied(target=target):
                self._swaps.copied(target)
            case EngineDied(profile=name, error=error):
                publish_death(self._tools.books, self.incidents, name, error)
            case Stop(profile=name):
                publish_stop(self._tools.books, self.incidents, name, self._scheduler.records.residents)
            case CatalogRead(profiles=profiles):
                self._take_profiles(self._read.popleft())
                forget_failures(self._tools.books, self.incidents, profiles, self._scheduler.records.residents)

    def _take_profiles(self, catalog: Catalog) -> None:
        """Keep the objects of unchanged profiles, so that a lease sees at a glance that nothing was edited."""
        known = self._profiles
        self._profiles = {
            name: known[name] if known.get(name) == read else read for name, read in catalog.profiles.items()
        }

    def _swap_over(self, move: SwapDone | SwapFailed | SwapCancelled) -> None:
        if runs := self._swaps.end(move):
            self._begin_watch(runs)
        if move.target is not None and not isinstance(move, SwapDone):
            why = move.error.message if isinstance(move, SwapFailed) else None
            self.incidents.not_started(move.target, why)
        elif isinstance(move, SwapFailed):
            self._waiters.settle(Stop, move.error)

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Grant() | Wait() | Refuse() | Cut():
                self.leasing.carry_out(effect)
            case Decline(profile=name, error=error):
                self._tools.books.notice(Level.WARNING, error.code, error.text(), name)
            case BeginSwap():
                comes = self._profiles[effect.target] if effect.target is not None else None
                self._swaps.begin(self._running(), effect, comes)
            case Evict(target=target):
                self._swaps.drained(target)
            case CancelSwap(target=target):
                self._swaps.cancel(target)

    def _unwatch(self, name: str) -> None:
        """From now on its end is no accident: a swap ends it."""
        self._watch.end(name)
        swaps = self._scheduler.records.swaps
        self.incidents.left(name, next((target for target, swap in swaps.items() if name in swap.evict), None))

    def _begin_watch(self, profile: Profile) -> None:
        self.incidents.serves(profile.name)
        self._watch.begin(self._running(), profile, self._tools.books.engines[profile.name])

    def _running(self) -> asyncio.TaskGroup:
        assert self._group  # noqa: S101 - moves are handled inside run
        return self._group

    def _refresh(self) -> None:
        """Publish figures, set the next timer and settle waiters, as the scheduler's records now say."""
        self._alarm.set(self._running(), self._scheduler.due)
        records = self._scheduler.records
        self._swaps.waiting(records.waiting_for, records.in_flight)
        self._counts.publish(records)
        self._tools.guarded.refresh()
        self._parking.keep()
        self.incidents.settle(self._tools.books.parked, self._scheduler.expects)
        self._attachments.keep()
        if not self._scheduler.stopping:
            self._waiters.settle(Stop)
        if not self._scheduler.cancelling:
            self._waiters.settle(Cancel)
