"""Ending an engine so that nothing of it stays: not its container, not a process, and its memory is accounted for.

Owns: what is measured before a stop, what is told of leftovers, and the end of one engine. Must not decide who is ended.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from sparkdash.domain.container import Leftovers
from sparkdash.domain.engine import Engine, EngineState
from sparkdash.domain.event import Level
from sparkdash.domain.swap import SwapPhase
from sparkdash.errors import HostError, SparkdashError
from sparkdash.supervisor.books import Books, failure_of
from sparkdash.supervisor.debts import Held
from sparkdash.supervisor.tools import Tools

MEASURE_S = 1.0
"""Limit of measuring what an engine holds: good to know, and no reason to keep a stop waiting."""


async def end(tools: Tools, engine: Engine) -> None:
    """Stop and remove; its last words are kept, what it held is remembered, what outlived it is told.

    Raises:
        HostError: it would not stop; it is shown as failed.
    """
    name = engine.profile
    tools.books.move(name, EngineState.STOPPING)
    held = None
    if engine.container is not None:
        held = await holds(tools, engine.container)
        await tools.logbook.close(name)
        try:
            left = await tools.runtime.stop(engine.container, tools.settings.stop_grace_s)
        except HostError as error:
            tools.books.move(name, EngineState.FAILED, failure=failure_of(error, SwapPhase.STOP))
            raise
        tell(tools.books, name, left)
    tools.books.drop(name, held)


async def holds(tools: Tools, container: str) -> Held | None:
    """What its processes hold now; None when nobody can tell, or not soon."""
    with suppress(SparkdashError, TimeoutError):
        async with asyncio.timeout(MEASURE_S):
            pids, reading = await asyncio.gather(tools.runtime.pids(container), tools.reader.gpu())
        took = tools.reader.engine_bytes(pids, reading) if pids else None
        return None if took is None else Held(took, tools.reader.memory().available)
    return None


def tell(books: Books, profile: str, left: Leftovers) -> None:
    """Say which processes outlived an engine, and what became of them."""
    if left.ended:
        text = f"{profile} left {_processes(left.ended)} behind; ended now."
        books.notice(Level.WARNING, "orphan_ended", text, profile)
    if left.stuck:
        text = (
            f"{profile} left {_processes(left.stuck)} behind, and not even SIGKILL ends that: stuck in the kernel, most "
            "often in the GPU's driver (`dmesg`), or another user's. Its memory may come back only with a restart of the box."
        )
        books.notice(Level.ERROR, "orphan_stuck", text, profile)


def _processes(pids: tuple[int, ...]) -> str:
    return f"orphan pid {pids[0]}" if len(pids) == 1 else f"orphan pids {', '.join(map(str, pids))}"
