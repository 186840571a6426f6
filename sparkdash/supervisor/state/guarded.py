"""Guarded engines: the supervisor's side of the memory guard.

`host.memory.guard` watches memory and kills, in a thread that waits for nobody; here are the table of engines that it
may kill, what follows from its reports, and their words.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from sparkdash.domain import memory as domain
from sparkdash.domain.container import ContainerInfo
from sparkdash.domain.engine import Engine, EngineState
from sparkdash.domain.event import Fact, GuardChanged, Level, Notice
from sparkdash.domain.memory import Floors, GuardKill, GuardLevel, Need
from sparkdash.domain.profile import Profile
from sparkdash.errors import AdmissionError, EngineError, SparkdashError
from sparkdash.host.box import HostReader
from sparkdash.host.memory.guard import KillTarget, MemoryGuard
from sparkdash.host.memory.guard_decisions import GuardReport, Victim
from sparkdash.host.memory.wedge_signs import Sign
from sparkdash.host.runtime import Runtime
from sparkdash.log import LOG
from sparkdash.settings import Settings
from sparkdash.store import Store
from sparkdash.supervisor.state.clock import Clock
from sparkdash.supervisor.state.registry import EngineRegistry
from sparkdash.units import gib, percent

CODE = "memory_guard"
WEDGING = "memory_wedging"
"""Code for a load that the guard stopped on a sign that the box was about to stand still."""
LIVELOCK = "load_livelock"
"""Code for a load whose way of reading stood still: the profile's own failure, which parks it."""
CODES = frozenset({CODE, WEDGING, LIVELOCK})
RETRY_S = 10.0

GRAVITY = {
    GuardLevel.OK: Level.INFO,
    GuardLevel.WARN: Level.WARNING,
    GuardLevel.HOLD: Level.WARNING,
    GuardLevel.KILL: Level.ERROR,
}
_MEANS = {
    GuardLevel.WARN: "soon no load will begin",
    GuardLevel.HOLD: "no load begins until it is back",
    GuardLevel.KILL: "the engine that costs least is killed next",
}


def level_notice(report: GuardReport, floors: Floors, *, acts: bool) -> str:
    """Word the notice that the guard entered another level."""
    now, available = report.level, report.look.available
    if now is not GuardLevel.OK:
        means = _MEANS[now] if acts else "`guard` is `warn`, so nothing is done about it"
        return f"Memory is short: {gib(available)} are available{_pressed(report)}; {means}."
    if floors.level(available) is GuardLevel.OK:
        return f"Memory is no longer short: {gib(available)} are available."
    return f"No engine runs any more, and the memory guard rests; {gib(available)} are available."


_FRAGMENTED = "Look at `sparkdash doctor contiguity`; a reboot fixes fragmented memory."
_FIXES = {
    Sign.RECLAIM: _FRAGMENTED,
    Sign.DRIVER: f"Give it a smaller context or KV cache. {_FRAGMENTED}",
    Sign.LIVELOCK: "Load it without mmap: `--load-format fastsafetensors` or `instanttensor` (vLLM), "
    "`--load-mode dio` (llama.cpp).",
}


def guard_failure(report: GuardReport, profile: str, floors: Floors) -> EngineError:
    if (wedge := report.wedge) is not None:
        blocks = "" if report.blocks is None else f", and {report.blocks} free blocks of 32 MiB"
        return EngineError(
            f"The memory guard stopped the load of {profile}: {wedge.evidence}, and boxes stood still for good after "
            f"that. {gib(report.look.available)} were available{blocks}.{_missed(report)}",
            code=LIVELOCK if wedge.sign is Sign.LIVELOCK else WEDGING,
            hint=_FIXES[wedge.sign],
        )
    return EngineError(
        f"The memory guard killed {profile}: {gib(report.look.available)} were available{_pressed(report)}"
        f"{_falling(report, floors)}, and under {gib(floors.kill)} the whole box may stand still.{_missed(report)}",
        code=CODE,
        hint="Give it a smaller context or KV cache, run less beside it, or set `guard_kill_gib` in config.toml.",
    )


def memory_low(profile: str, available: int, floors: Floors) -> AdmissionError:
    return AdmissionError(
        f"{profile} is not started while memory is short: {gib(available)} are available, "
        f"and until {gib(floors.hold)} are, the memory guard lets no load begin.",
        code="memory_low",
        status=503,
        retry_after=RETRY_S,
        hint="Stop an engine or what else holds memory, or lower `guard_hold_gib` in config.toml.",
    )


def _missed(report: GuardReport) -> str:
    return " None of its processes could be signalled; the runtime is asked instead." if report.processes == 0 else ""


def _pressed(report: GuardReport) -> str:
    return f", with memory pressure at {percent(report.look.pressure)} and rising" if report.verdict.pressed else ""


def _falling(report: GuardReport, floors: Floors) -> str:
    """Said where the floor was not reached yet."""
    early = report.look.available >= floors.kill and report.verdict.fall > 0
    return f", falling by {gib(int(report.verdict.fall))} a second" if early else ""


KILLS_KEPT = 10


@dataclass(slots=True)
class GuardedEngine:
    """Container of ours that the guard may kill, from its start on."""

    profile: Profile
    target: KillTarget | None
    killed: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    """Done once the guard has killed it."""
    reason: EngineError | None = None
    """Reason of the kill, by the guard itself or by the runtime."""
    aimed: GuardReport | None = None
    """Set by the guard's thread before it kills."""
    victim: Victim | None = None
    state: EngineState | None = None
    """State of the engine in which `victim` was weighed."""


@dataclass(kw_only=True, eq=False)
class GuardedEngines:
    """Engines under the memory guard. All but `aim` runs on the loop; without a guard nothing happens."""

    guard: MemoryGuard | None
    runtime: Runtime
    reader: HostReader
    clock: Clock
    settings: Settings
    publish: Callable[[Fact], object]
    store: Store | None
    registry: EngineRegistry
    needs: Callable[[Profile], Need]

    def __post_init__(self) -> None:
        if self.guard is not None and self.guard.mode == "off":
            self.guard = None
        self._guarded: dict[str, GuardedEngine] = {}
        self._unadopted: dict[str, tuple[ContainerInfo, KillTarget]] = {}
        """Engines by profile that the guard may kill and that serve nobody."""
        self._table: tuple[Victim, ...] = ()
        self._standing = domain.Guard(mode="off")
        self._asking: set[asyncio.Task[None]] = set()
        """Tasks that have the runtime end engines that could not be signalled."""

    def open(self) -> None:
        if self.guard is None:
            self._stand(self._standing)
            return
        loop = asyncio.get_running_loop()
        self._stand(domain.Guard(mode=self.guard.mode, floors=self.guard.floors))
        self.guard.start(lambda report: loop.call_soon_threadsafe(self.handle_report, report), self.aim)

    def close(self) -> None:
        """Stop the guard; engines that run on belong to the next daemon."""
        if self.guard is not None:
            self.guard.close()
        for task in self._asking:
            task.cancel()
        for container in list(self._guarded):
            self._forget(container)
        for _, target in self._unadopted.values():
            target.close()
        self._unadopted.clear()

    def apply_settings(self, settings: Settings) -> None:
        self.settings = settings
        if self.guard is not None:
            self.guard.govern(settings)
            now = self._standing.replace(mode=self.guard.mode, floors=self.guard.floors)
            if now != self._standing:
                self._stand(now)
        for guarded in self._guarded.values():
            guarded.victim = None  # weighed anew

    def add(self, profile: Profile, container: ContainerInfo) -> None:
        self._forget(container.name)
        self._guarded[container.name] = GuardedEngine(profile, KillTarget.of(container) if self.guard else None)
        self.refresh()

    def refresh(self) -> None:
        """Hand the guard what is there now; after every change of the registry."""
        here = {engine.container: engine for engine in self.registry.engines.values() if engine.container}
        for container in [name for name in self._guarded if name not in here]:
            self._forget(container)
        self._keep_unadopted()
        ours = (self._victim(here[name], guarded) for name, guarded in self._guarded.items())
        unadopted = (
            Victim(profile=name, container=container.name, kill=target.kill, serves=False)
            for name, (container, target) in self._unadopted.items()
        )
        table = (*filter(None, ours), *unadopted)
        if table != self._table and self.guard is not None:
            self._table = table
            self.guard.watch(table)

    def _keep_unadopted(self) -> None:
        there = self.registry.unadopted if self.guard else {}
        for name, (container, target) in list(self._unadopted.items()):
            if there.get(name) is not container:
                del self._unadopted[name]
                target.close()
        for name, container in there.items():
            if name not in self._unadopted and (found := KillTarget.of(container)):
                self._unadopted[name] = container, found

    def _victim(self, engine: Engine, guarded: GuardedEngine) -> Victim | None:
        """Describe the engine and the cost of its end, once per state; None when it is gone or cannot be killed."""
        if guarded.target is None or guarded.reason is not None:
            return None
        if engine.state is EngineState.FAILED and not guarded.target.alive:  # one that would not stop is there
            return None
        if guarded.victim is None or guarded.state is not engine.state:
            guarded.state, guarded.victim = engine.state, self._weighed(engine, guarded.profile, guarded.target)
        if guarded.victim.in_flight != engine.in_flight:
            guarded.victim = replace(guarded.victim, in_flight=engine.in_flight)
        return guarded.victim

    def _weighed(self, engine: Engine, profile: Profile, target: KillTarget) -> Victim:
        return Victim(
            profile=profile.name,
            container=engine.container or "",
            kill=target.kill,
            serves=engine.state.is_serving,
            loads=engine.state.is_coming,
            pinned=self.settings.policy_of(profile.name).pinned,
            bytes=self.needs(profile).total_bytes,
            reload_s=self.store.learned.expected_s(profile.fingerprint) if self.store else None,
        )

    def killed(self, container: str) -> asyncio.Future[None] | None:
        """Done once the guard has killed it; None for a container that was never added."""
        guarded = self._guarded.get(container)
        return guarded.killed if guarded else None

    def reason(self, container: str | None) -> EngineError | None:
        """Why the guard ended it, or is about to; None when it did not."""
        guarded = self._guarded.get(container or "")
        if guarded is None or guarded.reason or guarded.aimed is None or self.guard is None:
            return guarded.reason if guarded else None
        return guard_failure(guarded.aimed, guarded.profile.name, self.guard.floors)

    def heard_load(self) -> None:
        if self.guard is not None:
            self.guard.heard_load()

    def driver_refused(self, lines: int) -> None:
        if self.guard is not None:
            self.guard.driver_refused(lines)

    def short(self, what: str) -> AdmissionError | None:
        """Why a load of `what` may not begin now, with the figures; None when it may."""
        if self.guard is None or self.guard.mode != "act":
            return None
        floors, available = self.guard.floors, self.reader.memory().available
        if floors.level(available).rank < GuardLevel.HOLD.rank:
            return None
        return memory_low(what, available, floors)

    def warns(self) -> bool:
        """Whether available memory is under the guard's first floor now."""
        floors = self.guard.floors if self.guard else None
        return floors is not None and floors.level(self.reader.memory().available).rank >= GuardLevel.WARN.rank

    def aim(self, report: GuardReport) -> None:
        """Note, in the guard's thread, whom it kills next: a death is often seen before the loop hears of the kill."""
        victim = report.killed
        guarded = self._guarded.get(victim.container) if victim else None
        if guarded and guarded.target and victim and guarded.target.kill == victim.kill:
            guarded.aimed = report

    def handle_report(self, report: GuardReport) -> None:
        assert self.guard  # noqa: S101 - it is what speaks
        if report.error is not None:
            self._notice(Level.ERROR, "guard_failed", f"The memory guard could not look: {report.error}.")
        elif report.killed is not None:
            self._heard_kill(report, report.killed, self.guard)
        elif report.wedge is not None:
            text = f"The box may stand still soon: {report.wedge.evidence}. `guard` is `warn`, so the load goes on."
            self._notice(Level.WARNING, WEDGING, text)
        else:
            self._heard_level(report, self.guard)

    def _heard_level(self, report: GuardReport, guard: MemoryGuard) -> None:
        level = report.level
        self._stand(self._standing.replace(level=level, since=self.clock.now()))
        text = level_notice(report, guard.floors, acts=guard.mode == "act")
        self._notice(GRAVITY[level], f"memory_{level}", text)

    def _heard_kill(self, report: GuardReport, victim: Victim, guard: MemoryGuard) -> None:
        now, error = self.clock.now(), guard_failure(report, victim.profile, guard.floors)
        kill = GuardKill(
            at=now,
            profile=victim.profile,
            available=report.look.available,
            pressure=report.look.pressure,
            processes=report.processes or 0,
            reason=error.message,
        )
        if self.store is not None:
            self.store.record_kill(kill)
        kills = (kill, *self._standing.kills)[:KILLS_KEPT]
        self._stand(self._standing.replace(level=report.level, since=now, kills=kills))
        self._notice(Level.ERROR, error.code, error.text(), victim.profile)
        unadopted = victim.profile in self._unadopted  # nobody else watches this engine's end and removes it
        self._mark(victim.container, error, dead=bool(report.processes) and not unadopted)
        if unadopted:
            self.registry.forget_unadopted(victim.profile)
        self.refresh()

    def _mark(self, container: str, error: EngineError, *, dead: bool) -> None:
        guarded = self._guarded.get(container)
        if guarded is not None:
            if guarded.reason is not None:
                return
            guarded.reason = error
            if dead:
                guarded.killed.set_result(None)
        if not dead:
            task = asyncio.ensure_future(self._ask_runtime(container))
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)

    async def _ask_runtime(self, container: str) -> None:
        try:
            await self.runtime.stop(container, 0.0)
        except SparkdashError as error:
            self._notice(Level.ERROR, error.code, f"{container} could not be ended: {error.text()}")

    def _stand(self, standing: domain.Guard) -> None:
        self._standing = standing
        self.publish(GuardChanged(guard=standing))

    def _notice(self, level: Level, code: str, text: str, profile: str | None = None) -> None:
        LOG.log(level, text, {"code": code})
        self.publish(Notice(level=level, code=code, text=text, profile=profile))

    def _forget(self, container: str) -> None:
        guarded = self._guarded.pop(container, None)
        if guarded is not None and guarded.target is not None:
            guarded.target.close()
