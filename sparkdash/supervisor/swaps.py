"""The swap under way: its transition as a task, and what is written when it ends.

Owns: the one order and the one task. Must not decide when a swap begins or is cancelled.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable

from sparkdash.domain.engine import EngineState, Failure
from sparkdash.domain.event import Level
from sparkdash.domain.profile import Profile
from sparkdash.domain.swap import Swap, SwapOutcome
from sparkdash.errors import SparkdashError
from sparkdash.store import Store
from sparkdash.supervisor import guard_words
from sparkdash.supervisor.adopt import Found
from sparkdash.supervisor.books import failure_of
from sparkdash.supervisor.eta import Course
from sparkdash.supervisor.footprint import Footprints, Scale
from sparkdash.supervisor.moves import BeginSwap, Move, SwapCancelled, SwapDone, SwapFailed
from sparkdash.supervisor.tools import Tools
from sparkdash.supervisor.transition import Order, Transition


def _new_id() -> str:
    return secrets.token_hex(4)


def kin(profile: Profile) -> str:
    """What launches have in common that load about alike: the engine and the target model."""
    target = profile.models.get("target")
    return f"{profile.engine.value} {target.ref}" if target else ""


class Swaps:
    """At most one at a time; each ends with one move, handed to `tell`."""

    def __init__(
        self,
        tools: Tools,
        store: Store | None,
        tell: Callable[[Move], None],
        unwatch: Callable[[str], None],
        footprints: Footprints,
        new_id: Callable[[], str] = _new_id,
    ) -> None:
        self._tools = tools
        self._store = store
        self._tell = tell
        self._unwatch = unwatch
        self._footprints = footprints
        self._new_id = new_id
        self._order: Order | None = None
        self._transition: Transition | None = None
        self._task: asyncio.Task[Move] | None = None
        self._group: asyncio.TaskGroup | None = None
        self.resumes: Found | None = None
        """What an earlier daemon left loading; the next swap goes on with it."""

    def expected_s(self, profile: Profile | None) -> float | None:
        """Learned time of bringing this profile up."""
        return self._store.expected_s(profile.fingerprint) if self._store and profile else None

    def begin(self, group: asyncio.TaskGroup, effect: BeginSwap, target: Profile | None) -> None:
        """Start the transition; it stops nothing before `drained`."""
        books = self._tools.books
        evict = tuple(books.engines[name] for name in effect.evict)
        managed = target is not None and self._tools.adapter(target.engine).managed
        scale = Scale(self._tools, target) if target and managed and not self.resumes else None
        self._group = group
        self._order = Order(target, evict, self._tell, self._unwatch, self._resumed(target), scale)
        self._transition = Transition(self._tools, self._order)
        expected_s = self.expected_s(target)
        first, course = self._transition.phase, self._course(target)
        books.begin(
            self._new_id(), effect.target, effect.evict, effect.cause, first, expected_s, course, effect.reasons
        )
        for engine in evict:
            if engine.state is EngineState.READY:
                books.move(engine.profile, EngineState.DRAINING)
        self._task = group.create_task(self._outcome(self._transition), name="swap")
        self._task.add_done_callback(self._carried)

    def _resumed(self, target: Profile | None) -> Found | None:
        found, self.resumes = self.resumes, None
        return found if found and found.profile == target else None

    def drained(self) -> None:
        """What is to leave may be stopped now."""
        if self._order:
            self._order.drained.set()

    def cancel(self) -> None:
        """Give it up; SwapCancelled follows when what it began is gone, or how it ended if that was sooner."""
        if self._task:
            self._task.cancel()

    def end(self, move: SwapDone | SwapFailed | SwapCancelled) -> Profile | None:
        """Write down how it ended; the profile that runs now, if one came up."""
        order, transition = self._order, self._transition
        assert order and transition  # noqa: S101, PT018 - a swap that ends has begun
        self._order = self._transition = self._task = None
        self._keep_the_spared(order)
        if isinstance(move, SwapDone):
            ended = self._close(SwapOutcome.DONE, order.target, whole=order.resumes is None)
            self._weigh(order.scale, ended)
            return order.target
        if isinstance(move, SwapCancelled):
            self._away(order.target)
            self._close(SwapOutcome.CANCELLED, order.target)
        else:
            self._failed(failure_of(move.error, transition.phase), move.error.text(), order.target)
        return None

    def _keep_the_spared(self, order: Order) -> None:
        """Those that were to leave and are still there serve on."""
        engines = self._tools.books.engines
        for name in (engine.profile for engine in order.evict):
            if name in engines and engines[name].state is EngineState.DRAINING:
                self._tools.books.move(name, EngineState.READY)

    def _away(self, target: Profile | None) -> None:
        engine = self._tools.books.engines.get(target.name) if target else None
        # one that failed before this swap stays to be seen: it may be there still, since it would not stop
        if engine is not None and engine.state not in (EngineState.READY, EngineState.FAILED):
            self._tools.books.drop(engine.profile)

    def _failed(self, failure: Failure, words: str, target: Profile | None) -> None:
        name = target.name if target else None
        if target and not self._serves(target.name):
            self._tools.books.fail(target, failure)
        if failure.code != guard_words.CODE:  # the guard's kills are told when they happen
            self._tools.books.notice(Level.ERROR, failure.code, words, name)
        self._close(SwapOutcome.FAILED, target, failure)

    def _close(
        self, outcome: SwapOutcome, target: Profile | None, failure: Failure | None = None, *, whole: bool = True
    ) -> Swap:
        ended = self._tools.books.end(outcome, failure)
        if self._store and target:
            self._store.record_swap(ended, target.fingerprint, kin(target), whole=whole)
        return ended

    def _course(self, target: Profile | None) -> Course:
        """What earlier swaps to this launch tell; else those to another launch of its model."""
        if self._store is None or target is None:
            return Course()
        same, needs = self._store.steps(target.fingerprint), self._tools.needs(target).total_bytes
        return Course(same or self._store.steps(kin(target)), similar=not same, needs=needs)

    def _weigh(self, scale: Scale | None, ended: Swap) -> None:
        engine = self._tools.books.engines.get(ended.target or "")
        if scale and engine and self._group:
            self._group.create_task(self._footprints.weigh(scale, ended.id, engine), name=f"weigh {engine.profile}")

    def _serves(self, name: str) -> bool:
        engine = self._tools.books.engines.get(name)
        return engine is not None and engine.state is EngineState.READY

    async def _outcome(self, transition: Transition) -> Move:
        try:
            await transition.run()
        except SparkdashError as error:
            return SwapFailed(error)
        return SwapDone()

    def _carried(self, task: asyncio.Task[Move]) -> None:
        # a task that is cancelled before its first step runs nothing of its own: only a callback is sure to be called
        if task.cancelled():
            self._tell(SwapCancelled())
        elif task.exception() is None:
            self._tell(task.result())
