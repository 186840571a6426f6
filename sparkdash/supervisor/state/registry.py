"""EngineRegistry: every engine's published state, notices, parked profiles, debts of memory, and last log lines.

The actor and its transitions write it; everyone else reads frozen values.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass
from types import MappingProxyType
from typing import cast

from sparkdash.domain.container import ContainerInfo
from sparkdash.domain.engine import (
    RECENT_INCIDENTS,
    Engine,
    EngineState,
    Failure,
    IncidentList,
    Liveness,
    LoadProgress,
    Parked,
)
from sparkdash.domain.event import EngineChanged, Fact, IncidentsChanged, Level, Notice, ParkedChanged, UnadoptedChanged
from sparkdash.domain.node import LOCAL
from sparkdash.domain.profile import Profile
from sparkdash.domain.request import Task
from sparkdash.domain.swap import Swap, SwapPhase
from sparkdash.errors import EngineError, SparkdashError
from sparkdash.host.runtime import Runtime
from sparkdash.supervisor.decide import breaker
from sparkdash.supervisor.state.clock import Clock
from sparkdash.supervisor.state.swap_record import SwapEta, SwapRecord
from sparkdash.units import GIB

TOLERANCE = GIB
"""Available memory moves this much by itself; less than that is not a debt."""
SHARE = 0.1
"""Nor is less than this share of what was held: pages shared with others count in each."""


@dataclass(frozen=True, slots=True)
class HeldMemory:
    """Memory that an engine held before its stop, in bytes."""

    took: int
    available: int


class MemoryDebts:
    """Open until what was held is back, or until another engine takes memory and nothing can be told any more."""

    def __init__(self) -> None:
        self._took: dict[str, int | None] = {}
        self._before: int | None = None
        self.at = float("-inf")

    @property
    def who(self) -> tuple[str, ...]:
        return tuple(self._took)

    @property
    def held(self) -> int | None:
        """Sum of the bytes that they held; None when one of them was not measured."""
        known = [took for took in self._took.values() if took is not None]
        return sum(known) if known and len(known) == len(self._took) else None

    def left(self, profile: str, now: float, held: HeldMemory | None = None) -> None:
        """An engine of ours is gone; `held` None: not measured now, and an earlier measurement stands."""
        self.at = now
        if held and self._before is None:
            self._before = held.available
        self._took[profile] = held.took if held else self._took.get(profile)

    def missing(self, available: int) -> int | None:
        """Return the bytes that have not come back; None when one of them was not measured."""
        held = self.held
        if held is None or self._before is None:
            return None if self._took else 0
        missing = min(held, self._before + held - available)  # more was taken by somebody else meanwhile
        return missing if missing > max(TOLERANCE, held * SHARE) else 0

    def settle(self) -> None:
        """Forget all debts: they are paid, or can no longer be told."""
        self._took.clear()
        self._before = None


Publish = Callable[[Fact], object]


def failure_of(error: SparkdashError, phase: SwapPhase | None = None) -> Failure:
    """Convert the error to the frozen value that snapshots and records hold."""
    ours = phase.value if phase else None
    if isinstance(error, EngineError):
        return Failure(
            code=error.code,
            message=error.message,
            hint=error.hint,
            phase=error.phase or ours,
            exit_code=error.container_exit,
            log_tail=error.log_tail,
            evidence=error.evidence,
        )
    return Failure(code=error.code, message=error.message, hint=error.hint, phase=ours)


class EngineRegistry:
    """Present state of all engines, as frozen values."""

    def __init__(self, publish: Publish, clock: Clock) -> None:
        self._publish = publish
        self._clock = clock
        self._engines: dict[str, Engine] = {}
        self.engines: Mapping[str, Engine] = MappingProxyType(self._engines)
        """A live view; failed ones stay until their next start or a stop."""
        self.parked: dict[str, Parked] = {}
        self.unadopted: Mapping[str, ContainerInfo] = {}
        """Containers of an earlier daemon that run and whose profiles cannot be read, by profile."""
        self._debts: dict[str, MemoryDebts] = {}
        self.started: dict[str, Profile] = {}
        """Each engine's profile as it was started, whatever its file says now."""

    def debts_on(self, node: str) -> MemoryDebts:
        """Return what ended engines have not given back of a node's memory."""
        return self._debts.setdefault(node, MemoryDebts())

    def enter(
        self,
        profile: Profile,
        state: EngineState,
        *,
        port: int | None = None,
        url: str | None = None,
        container: str | None = None,
        nodes: tuple[str, ...] = (LOCAL,),
        adopted: bool = False,
        ready_at: float | None = None,
        version: str | None = None,
        model_id: str | None = None,
    ) -> Engine:
        """Begin a new incarnation of `profile` in this state."""
        engine = self._incarnation(profile, state).replace(nodes=nodes, port=port, url=url, container=container)
        return self._write(engine.replace(adopted=adopted, ready_at=ready_at, version=version, model_id=model_id))

    def _incarnation(self, profile: Profile, state: EngineState) -> Engine:
        self.started[profile.name] = profile
        return Engine(
            profile=profile.name,
            kind=profile.engine,
            state=state,
            since=self._clock.now(),
            fingerprint=profile.fingerprint,
            simulated=profile.engine.is_simulated,
        )

    def move(self, name: str, state: EngineState) -> None:
        """Move the engine of this profile to another state. No-op without such an engine, here and below."""
        if old := self._engines.get(name):
            self._write(old.replace(state=state, since=self._clock.now()))

    def ready(
        self, name: str, *, version: str | None, load_s: float | None = None, model_id: str | None = None
    ) -> None:
        """Mark the engine ready. `load_s`: time of its start, where all of it was seen."""
        if old := self._engines.get(name):
            now = self._clock.now()
            ready = old.replace(state=EngineState.READY, since=now, ready_at=now, progress=None)
            self._write(ready.replace(version=version, load_s=load_s, model_id=model_id))

    def not_stopped(self, name: str, failure: Failure) -> None:
        """Mark an engine failed because it could not be stopped; its container may still be there."""
        if old := self._engines.get(name):
            self._write(old.replace(state=EngineState.FAILED, since=self._clock.now(), failure=failure))

    def fail(self, profile: Profile, failure: Failure) -> None:
        """Mark the engine failed, as it is gone. It stays visible."""
        self._look_whether_gone(profile.name)
        if old := self._engines.get(profile.name):
            failed = old.replace(state=EngineState.FAILED, since=self._clock.now(), failure=failure)
            self._write(failed.replace(progress=None, in_flight=0, liveness=None))
        else:
            self._write(self._incarnation(profile, EngineState.FAILED).replace(failure=failure))

    def drop(self, name: str, held: HeldMemory | None = None) -> None:
        """Remove an engine that ended as it should. `held`: memory of this box that it was measured to hold."""
        self._look_whether_gone(name, held)
        if old := self._engines.pop(name, None):
            absent = old.replace(state=EngineState.ABSENT, since=self._clock.now(), progress=None, in_flight=0)
            self._publish(EngineChanged(engine=absent.replace(liveness=None)))
        self.started.pop(name, None)

    def gone(self, name: str, held: HeldMemory | None = None, nodes: tuple[str, ...] = ()) -> None:
        """Note that an engine left: its memory is on its way back on `nodes`; `held` is what it held on this box."""
        engine = self._engines.get(name)
        for node in nodes or (engine.nodes if engine else (LOCAL,)):
            self.debts_on(node).left(name, self._clock.monotonic(), held if node == LOCAL else None)

    def busy(self, name: str, in_flight: int, asked_at: Mapping[Task, float] = MappingProxyType({})) -> None:
        """Set how many requests use the engine, and when it was last given one; monotonic seconds."""
        old = self._engines.get(name)
        if old and old.in_flight != in_flight:
            ago = self._clock.now() - self._clock.monotonic()
            self._write(old.replace(in_flight=in_flight, asked_at={task: ago + at for task, at in asked_at.items()}))

    def able(self, name: str, tasks: frozenset[Task] | None, most_steps_s: float | None = None) -> None:
        """Set the tasks that the engine can do, and the ceiling of its decode steps, as far as known."""
        old = self._engines.get(name)
        if old and (old.does, old.most_steps_s) != (tasks, most_steps_s):
            self._write(old.replace(does=tasks, most_steps_s=most_steps_s))

    def lively(self, name: str, liveness: Liveness | None) -> None:
        """Set whether the engine makes progress on its work; None: it has none."""
        old = self._engines.get(name)
        if old and old.liveness != liveness and old.state is not EngineState.FAILED:
            self._write(old.replace(liveness=liveness))

    def progress(self, name: str, progress: LoadProgress) -> None:
        if old := self._engines.get(name):
            self._write(old.replace(progress=progress))

    def loading(self, *, but: str, on: Collection[str] | None = None) -> list[Engine]:
        """List our engines that are coming up, without `but`; on one of these nodes, or on any."""
        coming = [e for e in self._engines.values() if e.state.is_coming and e.container and e.profile != but]
        return coming if on is None else [each for each in coming if not set(on).isdisjoint(each.nodes)]

    def notice(self, level: Level, code: str, text: str, profile: str | None = None) -> None:
        self._publish(Notice(level=level, code=code, text=text, profile=profile))

    def leave_unadopted(self, containers: Mapping[str, ContainerInfo]) -> None:
        """Set the running engines that cannot be adopted now; published when they changed."""
        before, self.unadopted = self.unadopted, dict(containers)
        if before.keys() != self.unadopted.keys():
            self._publish(UnadoptedChanged(profiles=tuple(self.unadopted)))

    def forget_unadopted(self, profile: str) -> None:
        self.leave_unadopted({name: one for name, one in self.unadopted.items() if name != profile})

    def tell_incidents(self, kept: IncidentList) -> None:
        self._publish(IncidentsChanged(incidents=kept.incidents[:RECENT_INCIDENTS], repairs=kept.repairs))

    def recall(self, parked: Mapping[str, Parked]) -> None:
        if parked:
            self.parked = dict(parked)
            self._publish(ParkedChanged(parked=self.parked))

    def park(self, parked: Mapping[str, breaker.ParkedFailure]) -> dict[str, Parked | None]:
        """Set the parked profiles, published when they changed; return the changes, None for released profiles."""
        before, now = self.parked, {name: self._parked(name, each) for name, each in parked.items()}
        if now == before:
            return {}
        self.parked = now
        self._publish(ParkedChanged(parked=now))
        return {name: now.get(name) for name in before | now if now.get(name) != before.get(name)}

    def begin(self, swap: Swap, course: SwapEta) -> SwapRecord:
        """Publish a swap that begins, and return its record. `course`: the course of earlier swaps like it."""
        return SwapRecord(self._publish, self._clock, swap, course)

    def _look_whether_gone(self, name: str, held: HeldMemory | None = None) -> None:
        engine = self._engines.get(name)
        if engine and engine.container and engine.state is not EngineState.FAILED:
            self.gone(name, held)

    def _parked(self, name: str, parked: breaker.ParkedFailure) -> Parked:
        before, failure = self.parked.get(name), failure_of(parked.error)
        now = Parked(since=self._clock.now(), failures=parked.failures, failure=failure, fingerprint=parked.fingerprint)
        return before if before and before.replace(since=now.since) == now else now

    def _write(self, engine: Engine) -> Engine:
        self._engines[engine.profile] = engine
        self._publish(EngineChanged(engine=engine))
        return engine


KEPT = 1000
"""Lines kept of each profile. vLLM's start-up is 100 to 300 of them."""

LAST_WORDS_S = 10.0
RECENT_S = 3.0
"""Limit of reading the last lines of an engine that runs."""


def lines_of(
    runtime: Runtime, container: str, *, follow: bool, tail: int | None = None
) -> AbstractAsyncContextManager[AsyncIterator[str]]:
    """Open the container's log lines; the runtime's reader is closed when the context is left early."""
    return aclosing(cast("AsyncGenerator[str, None]", runtime.logs(container, follow=follow, tail=tail)))


class Logbook:
    """Lines by profile, newest incarnation only."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._lines: dict[str, deque[str]] = {}
        self._containers: dict[str, str] = {}

    def open(self, profile: str, container: str) -> None:
        """A new incarnation begins; what the last one said is forgotten."""
        self._lines[profile] = deque(maxlen=KEPT)
        self._containers[profile] = container

    def adopt(self, profile: str, container: str) -> None:
        """An engine that has been running; its log is with its container."""
        self._containers[profile] = container

    def add(self, profile: str, line: str) -> None:
        self._lines.setdefault(profile, deque(maxlen=KEPT)).append(line)

    def tail(self, profile: str, count: int = KEPT) -> list[str]:
        lines = list(self._lines.get(profile, ()))
        return lines[max(0, len(lines) - count) :]

    async def close(self, profile: str) -> None:
        """Keep the last lines of a container that is about to be removed."""
        container = self._containers.pop(profile, None)
        if container is None:
            return
        lines: deque[str] = deque(maxlen=KEPT)
        try:
            async with asyncio.timeout(LAST_WORDS_S):
                async with lines_of(self._runtime, container, follow=False, tail=KEPT) as said:
                    lines.extend([line async for line in said])
        except (SparkdashError, TimeoutError):
            return
        if lines:
            self._lines[profile] = lines

    async def recent(self, profile: str, count: int) -> list[str]:
        """Read the last lines as of now; those that are kept where the runtime is late."""
        lines: deque[str] = deque(maxlen=count)
        try:
            async with asyncio.timeout(RECENT_S), aclosing(self.read(profile, tail=count, follow=False)) as said:
                lines.extend([line async for line in said])
        except (SparkdashError, TimeoutError):
            return self.tail(profile, count)
        return list(lines)

    async def read(self, profile: str, *, tail: int | None, follow: bool) -> AsyncGenerator[str, None]:
        """Lines from the container while there is one, else those that were kept."""
        if container := self._containers.get(profile):
            async with lines_of(self._runtime, container, follow=follow, tail=tail) as said:
                async for line in said:
                    yield line
            return
        for line in self.tail(profile, KEPT if tail is None else tail):
            yield line
