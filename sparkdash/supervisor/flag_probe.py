"""Probe for the flags that the engines' programs list in their `--help`: asked once for each image or binary, and kept.

A program that answers within a moment is asked by the start that needs its flags. The others load their libraries
first, which takes half a minute and a gigabyte: they are asked one after another while the box is quiet, and a start
cancels the asking. No start fails because flags are not known.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterable

import structlog

from sparkdash.domain.container import ContainerSpec
from sparkdash.domain.event import Level
from sparkdash.domain.profile import Profile
from sparkdash.engines import containers
from sparkdash.engines.adapter import EngineAdapter
from sparkdash.engines.flag_check import unlisted_flags
from sparkdash.engines.flag_table import KnownFlags, parse_help
from sparkdash.errors import HostError, SparkdashError
from sparkdash.host.box import HostReader
from sparkdash.host.flag_store import FlagStore, identity
from sparkdash.host.runtime import Runtime
from sparkdash.rules import secret_at
from sparkdash.supervisor.state.clock import Clock
from sparkdash.supervisor.state.registry import EngineRegistry
from sparkdash.units import GIB

LOG = structlog.get_logger("sparkdash.flags")
QUICK_S = 5.0
"""Seconds for which a start waits for an answer. llama-server needs 10 ms, and a container half a second around it."""
SLOW_S = 180.0
"""Limit of a program that nobody waits for; vLLM's took 8 to 17 s on two cores."""
LOOK_S = 20.0
QUIET_LOOKS = 3
"""Looks in a row without a load or a request after which the box counts as quiet."""
SLOW_BYTES = 4 * GIB
"""Free memory, beyond the reserve, that a slow program needs before it is asked; vLLM's takes 1 GiB."""


Program = tuple[str | None, tuple[str, ...], str]


class FlagProbe:
    """Asks the programs of profiles for their flags. Without a store it knows nothing and asks nobody."""

    def __init__(
        self,
        store: FlagStore | None,
        *,
        runtime: Runtime,
        reader: HostReader,
        registry: EngineRegistry,
        clock: Clock,
        adapter: Callable[[Profile], EngineAdapter],
    ) -> None:
        self._store = store
        self._runtime = runtime
        self._reader = reader
        self._registry = registry
        self._clock = clock
        self._adapter = adapter
        self._wake = asyncio.Event()
        self._slow: asyncio.Task[object] | None = None
        self._late: set[Program] = set()
        """Programs that did not answer a start in time: no further start waits for them."""
        self._silent: set[Program] = set()
        """Programs that gave no list of flags; the next daemon tries again."""
        self._told: set[str] = set()

    async def known(self, profile: Profile, image_id: str) -> KnownFlags | None:
        """Return the flags of a profile's program, for its start; None while unknown. Waits only for quick programs."""
        if self._slow is not None:
            self._slow.cancel()
        if self._store is None or (found := self._question(profile)) is None:
            return None
        spec, quick = found
        program = await asyncio.to_thread(identity, spec, image_id)
        if program is None:
            return None
        known = self._store.recall(spec, program)
        if known is None and quick and _program(spec, program) not in self._late | self._silent:
            self._late.add(_program(spec, program))
            known = await self._ask(spec, program, QUICK_S)
        if known is not None:
            self._tell(profile, spec, known)
        return known

    def look(self) -> None:
        self._wake.set()

    async def run(
        self, profiles: Callable[[], Iterable[Profile]], *, reserve: Callable[[], int], idle: Callable[[], bool]
    ) -> None:
        """Ask the slow programs while the box is quiet, until cancelled."""
        if self._store is None:
            return
        while True:
            await self._wake.wait()
            self._wake.clear()
            for profile in await self._startable(profiles()):
                if not await self._unknown(profile) or not await self._quiet(reserve, idle):
                    continue
                if found := await self._unknown(profile):  # no start has asked it meanwhile
                    await self._ask_slowly(*found)

    def _question(self, profile: Profile) -> tuple[ContainerSpec, bool] | None:
        adapter = self._adapter(profile)
        asked = adapter.help(profile) if adapter.managed else None
        if asked is None or (self._runtime.containerised and profile.image is None):
            return None
        if secret_at(profile):  # a profile with secrets on its command line is not probed: `ps` would show them
            return None
        return containers.help_container(profile, asked.argv, containerised=self._runtime.containerised), asked.quick

    async def _startable(self, profiles: Iterable[Profile]) -> list[Profile]:
        asked = [profile for profile in profiles if self._question(profile)]
        if not self._runtime.containerised:
            return asked
        try:
            here = await self._runtime.images({profile.image for profile in asked if profile.image})
        except HostError:
            return []
        return [profile for profile in asked if profile.image in here]

    async def _unknown(self, profile: Profile) -> tuple[ContainerSpec, str] | None:
        """Container and identity of the program to ask; None when its flags are known, or it cannot be asked."""
        if (found := self._question(profile)) is None or self._store is None:
            return None
        spec, _ = found
        try:
            image_id = await self._runtime.image_id(spec.image or "")
        except HostError:
            return None
        program = await asyncio.to_thread(identity, spec, image_id) if image_id is not None else None
        if program is None or _program(spec, program) in self._silent or self._store.recall(spec, program):
            return None
        return spec, program

    async def _quiet(self, reserve: Callable[[], int], idle: Callable[[], bool]) -> bool:
        looks = 0
        while looks < QUIET_LOOKS:
            await self._clock.sleep(LOOK_S)
            busy = not idle() or any(engine.in_flight for engine in self._registry.engines.values())
            looks = 0 if busy else looks + 1
        try:
            return self._reader.memory().available >= reserve() + SLOW_BYTES
        except SparkdashError:
            return False

    async def _ask_slowly(self, spec: ContainerSpec, program: str) -> None:
        self._slow = asyncio.ensure_future(self._ask(spec, program, SLOW_S))
        try:
            await asyncio.wait((self._slow,))
            if self._slow.cancelled():  # a start has precedence; the program is asked again when nothing runs
                self._wake.set()
        finally:
            self._slow.cancel()
            self._slow = None

    async def _ask(self, spec: ContainerSpec, program: str, limit_s: float) -> KnownFlags | None:
        assert self._store is not None  # noqa: S101 - nobody asks without one
        try:
            named = spec.replace(name=f"{spec.name}-{secrets.token_hex(4)}")
            known = parse_help(await self._runtime.output(named, deadline_s=limit_s))
        except HostError as error:
            LOG.info("a program did not list its flags", program=spec.argv, image=spec.image, why=error.text())
            if limit_s < SLOW_S:
                self._wake.set()  # only the first run may be slow: rootless podman copies a big image then
                return None
            known = None
        if known is None:
            self._silent.add(_program(spec, program))
        else:
            await asyncio.to_thread(self._store.keep, spec, program, known)
        return known

    def _tell(self, profile: Profile, spec: ContainerSpec, known: KnownFlags) -> None:
        if profile.fingerprint in self._told:
            return
        self._told.add(profile.fingerprint)
        for stray in unlisted_flags(profile, known):
            where = f" in {spec.image}" if spec.image else ""
            text = f"{profile.name}: `--help` of {spec.argv[0]}{where} does not list --{stray.key}. {stray.hint}"
            self._registry.notice(Level.WARNING, "flag_not_listed", text, profile.name)


def _program(spec: ContainerSpec, program: str) -> Program:
    return spec.image, spec.argv, program
