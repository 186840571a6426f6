"""Watching engines that run, so that a death is known before the next request meets it.

Owns: one task for each resident engine. Must not decide what a death means.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from sparkdash.domain.engine import Engine
from sparkdash.domain.event import Level
from sparkdash.domain.profile import Profile
from sparkdash.errors import EngineError, SparkdashError
from sparkdash.supervisor.load import crashed, until_it_ends
from sparkdash.supervisor.moves import EngineDied, Move
from sparkdash.supervisor.probe import unreachable
from sparkdash.supervisor.stopping import tell
from sparkdash.supervisor.tools import Tools

PROBE_EVERY_S = 5.0
"""How often an engine that is not ours is probed."""
MISSES = 3
"""Probes in a row that must fail before it counts as gone."""
CONFIRM_S = 5.0
"""How long a silent engine's end is waited for: between a closed connection and a container that has ended lie a
second or two."""
CLEARED_S = 30.0
"""How long the end of one that is seen to have ended is waited for: its last words, and a slow runtime that clears it away. One that
hangs is not waited for."""


class Watch:
    """Tells `EngineDied` once for each watched engine that ends by itself."""

    def __init__(self, tools: Tools, tell: Callable[[Move], None]) -> None:
        self._tools = tools
        self._tell = tell
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._looks: dict[str, asyncio.Event] = {}
        self._ended: set[str] = set()
        """Containers whose end is seen and not told yet: a slow runtime takes its time to clear away."""

    def begin(self, group: asyncio.TaskGroup, profile: Profile, engine: Engine) -> None:
        """Watch this incarnation."""
        self.end(profile.name)
        look = self._looks[profile.name] = asyncio.Event()
        work = self._container(profile, engine.container) if engine.container else self._remote(profile, engine, look)
        self._tasks[profile.name] = group.create_task(work, name=f"watch {profile.name}")

    def end(self, name: str) -> None:
        """Its end is no accident any more."""
        if task := self._tasks.pop(name, None):
            task.cancel()

    async def confirm(self, profile: Profile, engine: Engine) -> None:
        """A request had trouble with it: return once its death, if it is one, has been told; soon if none is seen."""
        task, look = self._tasks.get(profile.name), self._looks.get(profile.name)
        if task is None or look is None or not await unreachable(self._tools, profile, engine.url or ""):
            return
        look.set()
        if engine.container:
            await asyncio.wait({task}, timeout=CONFIRM_S)
            if engine.container in self._ended:
                await asyncio.wait({task}, timeout=CLEARED_S)

    async def _container(self, profile: Profile, container: str) -> None:
        code = await until_it_ends(self._tools, container)
        if code is None:  # the memory guard killed it, and the runtime hangs: whoever waits is told before that ends
            self._died(profile, crashed(self._tools, profile, container, code, "died"))
            await self._clear_away(profile, container)
            return
        self._ended.add(container)
        try:
            await self._tools.logbook.close(profile.name)
            error = crashed(self._tools, profile, container, code, "died")
            await self._clear_away(profile, container)
        finally:
            self._ended.discard(container)
        self._died(profile, error)

    async def _clear_away(self, profile: Profile, container: str) -> None:
        books = self._tools.books
        await self._tools.logbook.close(profile.name)
        try:
            tell(books, profile.name, await self._tools.runtime.stop(container, 0.0))
        except SparkdashError as error:  # the next start of this profile replaces it
            text = f"{container} has ended and could not be cleared away; whether it left processes behind is not known. {error.text()}"
            books.notice(Level.WARNING, error.code, text, profile.name)

    async def _remote(self, profile: Profile, engine: Engine, look: asyncio.Event) -> None:
        misses = 0
        why: str | None = None
        while misses < MISSES:
            await self._pause(look)
            why = await unreachable(self._tools, profile, engine.url or "")
            misses = misses + 1 if why else 0
        self._died(profile, EngineError(f"{profile.name} no longer answers: {why}.", code="engine_unreachable"))

    async def _pause(self, look: asyncio.Event) -> None:
        sleep = asyncio.ensure_future(self._tools.clock.sleep(PROBE_EVERY_S))
        wake = asyncio.ensure_future(look.wait())
        try:
            await asyncio.wait({sleep, wake}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            look.clear()
            sleep.cancel()
            wake.cancel()

    def _died(self, profile: Profile, error: EngineError) -> None:
        self._tasks.pop(profile.name, None)
        self._tell(EngineDied(profile.name, error))
