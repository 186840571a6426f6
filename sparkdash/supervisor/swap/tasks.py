"""Swap tasks: each transition under way as a task, and the records written at its end."""

import asyncio
import secrets
from collections.abc import Callable, Mapping

from sparkdash.domain.engine import EngineState, Failure
from sparkdash.domain.event import Level
from sparkdash.domain.profile import Profile
from sparkdash.domain.swap import Swap, SwapCause, SwapOutcome, SwapPhase
from sparkdash.errors import SparkdashError
from sparkdash.host.memory import page_cache
from sparkdash.supervisor.decide.moves import BeginSwap, Move, SwapCancelled, SwapDone, SwapFailed
from sparkdash.supervisor.memory.footprint import FootprintMeter, weigh
from sparkdash.supervisor.state import guarded
from sparkdash.supervisor.state.registry import failure_of
from sparkdash.supervisor.state.swap_record import SwapEta, SwapRecord
from sparkdash.supervisor.swap.transition import AdoptableEngine, Transition, first_phase, launch_family
from sparkdash.supervisor.tools import Tools


def _requests(held: Mapping[str, int]) -> str:
    left = sum(held.values())
    return f"{left} request{'' if left == 1 else 's'} of {' and '.join(held)}"


class SwapTasks:
    """Tasks of the swaps under way; each ends with one move, handed to `tell`."""

    def __init__(self, tools: Tools, tell: Callable[[Move], None], unwatch: Callable[[str], None]) -> None:
        self._tools = tools
        self._store = tools.store
        self._tell = tell
        self._unwatch = unwatch
        self._under_way: dict[str | None, Transition] = {}
        """Swaps by target; None is the swap that only stops."""
        self._group: asyncio.TaskGroup | None = None
        self.resumes: AdoptableEngine | None = None
        """Engine that an earlier daemon left loading; the next swap continues its load."""
        self.former: dict[str, Profile] = {}
        """Targets of swaps as they ran when a newer version of their profile was to replace them."""
        self.stop_causes: dict[str, SwapCause] = {}
        """Cause of each ordered stop by profile, for the record alone."""

    def expected_s(self, profile: Profile | None) -> float | None:
        """Time of bringing this profile up: learned, else published."""
        if profile is None:
            return None
        learned = self._store.learned.expected_s(profile.fingerprint) if self._store else None
        return profile.published_start_s if learned is None else learned

    def begin(self, group: asyncio.TaskGroup, effect: BeginSwap, target: Profile | None) -> None:
        """Start the transition; it stops nothing before `drained`."""
        registry = self._tools.registry
        evict = tuple(registry.engines[name] for name in effect.evict)
        managed = target is not None and self._tools.adapter(target).managed
        scale = FootprintMeter(self._tools, target, effect.nodes) if target and managed and not self.resumes else None
        if target is not None and target.name in effect.evict:
            self.former[target.name] = registry.started[target.name]
        resumes = self._resumed(target)
        record = self._record(effect, target, first_phase(managed and resumes is None, evict))
        swap = Transition(
            self._tools,
            target,
            evict,
            record,
            effect.nodes,
            tell=self._tell,
            unwatch=self._unwatch,
            resumes=resumes,
            scale=scale,
            copies=effect.copies,
            drain_until=self._tools.clock.now() + self._tools.settings.drain_s,
        )
        if not swap.copies:
            self._move_evicted(swap, EngineState.READY, EngineState.DRAINING)
        self._group = group
        swap.task = group.create_task(self._outcome(swap), name=f"swap to {effect.target}")
        swap.task.add_done_callback(lambda task: self._report_end(task, effect.target))
        self._under_way[effect.target] = swap

    def _move_evicted(self, swap: Transition, before: EngineState, after: EngineState) -> None:
        engines = self._tools.registry.engines
        for name in (engine.profile for engine in swap.evict):
            if name in engines and engines[name].state is before:
                self._tools.registry.move(name, after)

    def copied(self, target: str) -> None:
        """Note that the engines that the swap to `target` evicts take no new requests from now on."""
        if swap := self._under_way.get(target):
            swap.copies = False
            self._move_evicted(swap, EngineState.READY, EngineState.DRAINING)

    def _record(self, effect: BeginSwap, target: Profile | None, phase: SwapPhase) -> SwapRecord:
        now = self._tools.clock.now()
        cause, reasons = effect.cause, dict(effect.reasons)
        if effect.target is None and {self.stop_causes.pop(name, None) for name in effect.evict} == {SwapCause.BENCH}:
            cause, reasons = SwapCause.BENCH, dict.fromkeys(effect.evict, "a bench run stopped it")
        swap = Swap(
            id=secrets.token_hex(4),
            target=effect.target,
            evict=effect.evict,
            nodes=effect.nodes,
            reasons=reasons,
            cause=cause,
            phase=phase,
            started_at=now,
            phase_at=now,
            expected_s=self.expected_s(target),
        )
        course = self._course(target)
        return self._tools.registry.begin(swap.replace(reads_s=self._reads_s(target, course)), course)

    def _resumed(self, target: Profile | None) -> AdoptableEngine | None:
        found, self.resumes = self.resumes, None
        return found if found and found.profile == target else None

    def continues(self, container: str) -> bool:
        """Whether a swap continues the load of this container; the registry has it from the swap's first step on."""
        resumed = (self.resumes, *(swap.resumes for swap in self._under_way.values()))
        return any(found is not None and found.container.name == container for found in resumed)

    def waiting(self, count: Callable[[str | None], int], in_flight: Callable[[str], int]) -> None:
        """Publish how many requests wait for each target, and which requests its drain waits for."""
        for target, swap in self._under_way.items():
            record = swap.record
            record.waiting(count(target))
            if record.swap.phase is SwapPhase.DRAIN and not swap.copies:
                held = {name: left for name in record.swap.evict if (left := in_flight(name))}
                record.waits(_requests(held) if held else None, swap.drain_until if held else None)

    def drained(self, target: str | None) -> None:
        if swap := self._under_way.get(target):
            swap.drained.set()

    def extend(self, target: str) -> bool:
        """Let the load of `target` stand still for its whole limit from now on; return whether it stands still."""
        swap = self._under_way.get(target)
        if swap is None or swap.record.swap.still_since is None:
            return False
        swap.record.extend()
        return True

    def cancel(self, target: str | None) -> None:
        """Give it up; SwapCancelled follows when what it began is gone, or how it ended if that was sooner."""
        if swap := self._under_way.get(target):
            swap.task.cancel()

    def end(self, move: SwapDone | SwapFailed | SwapCancelled) -> Profile | None:
        """Write down how it ended; the profile that runs now, if one came up."""
        swap = self._under_way.pop(move.target)
        self._move_evicted(swap, EngineState.DRAINING, EngineState.READY)  # those that were spared
        if isinstance(move, SwapDone):
            ended = self._close(swap, SwapOutcome.DONE, whole=swap.resumes is None)
            self._weigh(swap.scale, ended)
            return swap.target
        if isinstance(move, SwapCancelled):
            engine = self._tools.registry.engines.get(swap.target.name) if swap.target else None
            # an engine that failed before this swap stays visible: it may still be there, as it would not stop
            if engine is not None and engine.state not in (EngineState.READY, EngineState.FAILED):
                self._tools.registry.drop(engine.profile)
            self._close(swap, SwapOutcome.CANCELLED)
        else:
            self._failed(swap, failure_of(move.error, swap.phase), move.error.text())
        return None

    def _failed(self, swap: Transition, failure: Failure, words: str) -> None:
        target = swap.target
        engine = self._tools.registry.engines.get(target.name) if target else None
        if target and (engine is None or engine.state is not EngineState.READY):
            self._tools.registry.fail(target, failure)
            if former := self.former.get(target.name):  # what may come back counts with the memory that it took
                self._tools.registry.started[target.name] = former
        if failure.code not in guarded.CODES:  # the guard's kills have a notice already
            self._tools.registry.notice(Level.ERROR, failure.code, words, target.name if target else None)
        self._close(swap, SwapOutcome.FAILED, failure)

    def _close(
        self, swap: Transition, outcome: SwapOutcome, failure: Failure | None = None, *, whole: bool = True
    ) -> Swap:
        target, store = swap.target, self._store

        def record(ended: Swap) -> None:
            if store is not None and target is not None:
                store.record_swap(ended, target.fingerprint, launch_family(target), whole=whole)
            elif store is not None:
                store.record_swap(ended, "")

        return swap.record.end(outcome, failure, record)

    def _course(self, target: Profile | None) -> SwapEta:
        """Return the estimator, with steps of earlier swaps to this launch, else to another launch of its model."""
        if self._store is None or target is None:
            return SwapEta()
        same, needs = self._store.learned.steps(target.fingerprint), self._tools.needs(target).total_bytes
        return SwapEta(same or self._store.learned.steps(launch_family(target)), similar=not same, needs=needs)

    def _reads_s(self, target: Profile | None, course: SwapEta) -> float | None:
        """Time of reading one box's share of the weights from the disk, for a first load."""
        weights = self._tools.needs.target(target) if target and not course.learned_from else None
        rate = page_cache.kept_disk_rate() if weights else None
        return weights.bytes.total / target.nodes / rate if target and weights and rate else None

    def _weigh(self, scale: FootprintMeter | None, ended: Swap) -> None:
        engine = self._tools.registry.engines.get(ended.target or "")
        if scale and engine and self._group:
            self._group.create_task(weigh(self._tools, scale, ended.id, engine), name=f"weigh {engine.profile}")

    async def _outcome(self, swap: Transition) -> Move:
        target = swap.target.name if swap.target else None
        try:
            await swap.run()
        except SparkdashError as error:
            return SwapFailed(target, error)
        return SwapDone(target)

    def _report_end(self, task: asyncio.Task[Move], target: str | None) -> None:
        # a task that is cancelled before its first step runs nothing of its own: only a callback is sure to be called
        if task.cancelled():
            self._tell(SwapCancelled(target))
        elif task.exception() is None:
            self._tell(task.result())
