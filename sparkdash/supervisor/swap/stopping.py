"""Ending an engine so that nothing of it stays: not its container, not a process, and its memory is accounted for.

Owns: what is measured before a stop, what is told of leftovers, the end of one engine. Must not decide who is ended.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

import structlog

from sparkdash.domain.container import Leftovers
from sparkdash.domain.engine import Engine, EngineState
from sparkdash.domain.event import Level
from sparkdash.domain.node import LOCAL
from sparkdash.domain.profile import EngineKind
from sparkdash.domain.swap import SwapPhase
from sparkdash.engines.generic.known_servers import server_of
from sparkdash.errors import HostError, SparkdashError
from sparkdash.supervisor.books import Books, failure_of
from sparkdash.supervisor.memory.debts import HeldMemory
from sparkdash.supervisor.tools import Tools

LOG = structlog.get_logger("sparkdash.supervisor")
MEASURE_S = 1.0
"""Limit of measuring what an engine holds: good to know, and no reason to keep a stop waiting."""


async def begin_stop(tools: Tools, engine: Engine) -> HeldMemory | None:
    """Publish the engine as stopping; return the memory of this box that it holds, where that can be told."""
    tools.books.move(engine.profile, EngineState.STOPPING)
    return await measure_held_memory(tools, engine)


async def stop_engine(tools: Tools, engine: Engine, held: HeldMemory | None) -> None:
    """Stop and remove the engine; keep its last lines, note what it `held`, and report what outlived it.

    Raises:
        HostError: it would not stop; it is shown as failed.
    """
    name = engine.profile
    if engine.container is not None:
        # read while it ends, so that reading does not lengthen the grace
        words = asyncio.ensure_future(tools.logbook.close(name))
        try:
            left = await tools.runtime.stop(engine.container, grace_s(tools, name), words)
        except HostError as error:
            tools.books.not_stopped(name, failure_of(error, SwapPhase.STOP))
            raise
        finally:
            await words
        report_leftovers(tools.books, name, left)
    tools.books.drop(name, held)


def grace_s(tools: Tools, name: str) -> float:
    """Seconds between the stop signal and SIGKILL: the profile's own for its server, else those of the settings."""
    profile = tools.books.started.get(name)
    own = server_of(profile).stop_s if profile and profile.engine is EngineKind.GENERIC else None
    return tools.settings.stop_grace_s if own is None else own


async def stop_all_engines(tools: Tools) -> None:
    """Stop all our containers when the daemon has ended; failures are logged, as nobody is there to be told."""
    graces = {e.container: grace_s(tools, e.profile) for e in tools.books.engines.values() if e.container}
    graces |= {container.name: tools.settings.stop_grace_s for container in tools.books.unadopted.values()}
    stops = (tools.runtime.stop(name, limit_s) for name, limit_s in graces.items())
    for name, ended in zip(graces, await asyncio.gather(*stops, return_exceptions=True), strict=True):
        if isinstance(ended, SparkdashError):
            LOG.error("an engine was not stopped", container=name, code=ended.code, why=ended.text())
        elif isinstance(ended, BaseException):
            LOG.error("an engine was not stopped", container=name, exc_info=ended)
        elif ended.stuck or ended.unremoved:
            LOG.error("an engine left something behind", container=name, stuck=ended.stuck_how, why=ended.unremoved)


async def measure_held_memory(tools: Tools, engine: Engine) -> HeldMemory | None:
    """Measure the memory of this box that the engine's processes hold; None when nobody can tell, or not soon."""
    if engine.container is None or LOCAL not in engine.nodes:
        return None
    with suppress(SparkdashError, TimeoutError):
        async with asyncio.timeout(MEASURE_S):
            pids, reading = await asyncio.gather(tools.runtime.pids(engine.container), tools.reader.gpu())
        took = tools.reader.engine_bytes(pids, reading) if pids else None
        return None if took is None else HeldMemory(took, tools.reader.memory().available)
    return None


def report_leftovers(books: Books, profile: str, left: Leftovers) -> None:
    """Report which processes outlived an engine, what was done about them, and whether more are left."""
    if left.ended:
        text = f"{profile} left {_processes(left.ended)} behind; ended now."
        books.notice(Level.WARNING, "orphan_ended", text, profile)
    if left.stuck:
        how = f": {'; '.join(left.stuck_how)}" if left.stuck_how else ""
        text = (
            f"{profile} left {_processes(left.stuck)} behind, which SIGKILL did not end{how}. "
            "What such a process holds is free once it ends."
        )
        books.notice(Level.ERROR, "orphan_stuck", text, profile)
    if left.unremoved:
        text = f"{profile} has ended, and its container is still listed: {left.unremoved} The next start removes it."
        books.notice(Level.WARNING, "container_left", text, profile)
    if left.owed:
        nodes = " and ".join(left.owed)
        text = (
            f"{profile} may still run on {nodes}, which does not answer. sparkdash ends it there as soon as {nodes} "
            "can be reached."
        )
        books.notice(Level.WARNING, "removal_owed", text, profile)
    if left.unseen:
        text = (
            f"Whether {profile} left processes behind is not known: the look at all processes of this box was late. "
            "If its memory does not come back, the next start of the daemon looks again and ends them."
        )
        books.notice(Level.WARNING, "orphan_unknown", text, profile)


def _processes(pids: tuple[int, ...]) -> str:
    return f"orphan pid {pids[0]}" if len(pids) == 1 else f"orphan pids {', '.join(map(str, pids))}"
