"""How long everything lives: the order of start and stop, and what happens when a part crashes.

Telemetry is started again (logged, counted, shown); a crash in the supervisor ends the daemon, since wrong books are
worse than none. Must not know what any part does, nor how it is made.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

import structlog

from sparkdash import listen
from sparkdash.daemon import signals
from sparkdash.daemon.build import built
from sparkdash.daemon.door import opened
from sparkdash.daemon.house import House, Parts
from sparkdash.daemon.reading import watched
from sparkdash.domain.event import Level, Notice
from sparkdash.errors import SparkdashError

LOG = structlog.get_logger("sparkdash")
RESTART_S = (1.0, 5.0, 30.0)
"""Pauses before telemetry is started again; the last one repeats."""
ADOPTED_S = 2.0
"""Seconds for which every request waits at the start while the runtime lists engines of an earlier daemon. After that
only requests for an engine wait: a runtime that hangs is given 20 seconds a call.
"""
FAREWELL_S = listen.GRACE_S - 1.0
"""How long answers that are under way may go on once the daemon is told to end; the rest is for telling their clients."""


async def serve(parts: Parts, *, ready: Callable[[House], None] | None = None) -> None:
    """Bring everything up, serve, and take it down in the reverse order. `ready` is called once it answers."""
    with opened(parts.settings, parts.handover) as door:
        async with built(parts, door) as house:
            try:
                await _live(house, door.sockets, ready)
            finally:
                await asyncio.shield(house.supervisor.close(stop_engines=parts.stop_engines))
                parts.reader.close()


async def _live(house: House, sockets: list[socket.socket], ready: Callable[[House], None] | None) -> None:
    loop = asyncio.get_running_loop()
    signals.handle(loop, house)
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(house.supervisor.run(), name="supervisor"),
            group.create_task(_kept_alive(house, "telemetry", house.collector.run), name="telemetry"),
            group.create_task(_kept_alive(house, "profiles", lambda: watched(house)), name="profiles"),
            group.create_task(_farewell(house), name="farewell"),
            *(group.create_task(_awaited(task(house)), name="beside") for task in house.parts.beside),
        ]
        tasks.append(await _adopted(house, group))
        if ready is not None:
            loop.call_soon(ready, house)
        LOG.info("serving", url=f"{house.url}/v1", runtime=house.parts.runtime.name)
        await house.server.serve(sockets=sockets)
        for task in (*tasks, *house.errands):
            task.cancel()


async def _adopted(house: House, group: asyncio.TaskGroup) -> asyncio.Task[None]:
    """Wait until engines of an earlier daemon were looked for, ADOPTED_S at most."""
    adopted = group.create_task(house.supervisor.adopted(), name="adopted")
    await asyncio.wait({adopted}, timeout=ADOPTED_S)
    if not adopted.done():
        text = (
            f"{house.parts.runtime.name} has not answered yet which engines run. "
            "Requests for an engine wait for its answer."
        )
        LOG.warning(text)
        house.bus.publish(Notice(level=Level.WARNING, code="runtime_slow", text=text))
    return adopted


async def _farewell(house: House) -> None:
    """When the daemon is told to end: who waits is told at once, who is served shortly before connections are cut."""
    await house.server.stopping()
    if house.parts.leave is not None:
        await house.parts.leave(house)
    await asyncio.sleep(house.server.linger_s)  # requests on kept connections are still served
    house.supervisor.retire(cut=False)
    house.bus.end()  # dashboards look for the next daemon, instead of keeping this one
    await asyncio.sleep(FAREWELL_S - house.server.linger_s)
    house.supervisor.retire(cut=True)


async def _awaited(work: Awaitable[None]) -> None:
    await work


async def _kept_alive(house: House, name: str, work: Callable[[], Awaitable[None]]) -> None:
    while True:
        try:
            await work()
        except Exception as error:
            count = house.restarts[name] = house.restarts.get(name, 0) + 1
            LOG.exception("a part crashed and is started again", part=name, restarts=count)
            text = f"{name} crashed ({type(error).__name__}) and was started again; restart {count}."
            house.bus.publish(Notice(level=Level.ERROR, code=f"{name}_restarted", text=text))
            await asyncio.sleep(RESTART_S[min(count, len(RESTART_S)) - 1])
        else:
            return


def told_why(error: BaseException) -> SparkdashError | None:
    """The first expected error inside an exception group, for the command line."""
    if isinstance(error, SparkdashError):
        return error
    if isinstance(error, BaseExceptionGroup):
        found = [told_why(inner) for inner in error.exceptions]
        return next((e for e in found if e), None)
    return None
