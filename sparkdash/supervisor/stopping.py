"""Ending an engine so that nothing of it stays: not its container, not a process, and its memory is accounted for.

Owns: what is measured before a stop, what is told of leftovers, the end of one engine, and of its weights in the page
cache where the owner wants that. Must not decide who is ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from sparkdash.domain.container import Leftovers
from sparkdash.domain.engine import Engine, EngineState
from sparkdash.domain.event import Level
from sparkdash.domain.profile import ModelRef, Profile
from sparkdash.domain.swap import SwapPhase
from sparkdash.errors import HostError, SparkdashError
from sparkdash.host import pagecache, weights_here
from sparkdash.host.thread import in_thread
from sparkdash.supervisor.books import Books, failure_of
from sparkdash.supervisor.debts import Held
from sparkdash.supervisor.tools import Tools
from sparkdash.units import duration, gib

MEASURE_S = 1.0
"""Limit of measuring what an engine holds: good to know, and no reason to keep a stop waiting."""

LET_GO_S = 5.0
"""Limit of letting go of cached weights: a swap does not wait longer for what the kernel would do by itself."""


async def weigh(tools: Tools, engine: Engine) -> Held | None:
    """Publish the engine as stopping; return the memory that it holds, where that can be told."""
    tools.books.move(engine.profile, EngineState.STOPPING)
    return None if engine.container is None else await holds(tools, engine.container)


async def end(tools: Tools, engine: Engine, held: Held | None) -> None:
    """Stop and remove; its last words are kept, what it `held` is remembered, what outlived it is told.

    Raises:
        HostError: it would not stop; it is shown as failed.
    """
    name = engine.profile
    if engine.container is not None:
        words = asyncio.ensure_future(
            tools.logbook.close(name)
        )  # read while it ends: the grace is not made longer by it
        try:
            left = await tools.runtime.stop(engine.container, tools.settings.stop_grace_s, words)
        except HostError as error:
            tools.books.not_stopped(name, failure_of(error, SwapPhase.STOP))
            raise
        finally:
            await words
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


async def let_go(tools: Tools, left: Sequence[Profile], comes: Profile | None) -> None:
    """Have the kernel forget the weight files of those who left that nobody who runs or `comes` reads, and tell. It never fails."""
    books, hf_home, names = tools.books, tools.settings.hf_home.expanduser(), ", ".join(each.name for each in left)
    stay = [books.started[e.profile] for e in books.engines.values() if e.state is not EngineState.FAILED]
    old, kept = _weights(tools, left), _weights(tools, [*stay, *([comes] if comes else [])])

    def work() -> pagecache.LetGo:
        return pagecache.let_go(sorted(_files(old, hf_home) - _files(kept, hf_home)), LET_GO_S)

    try:
        before = tools.reader.memory().page_cache
        async with asyncio.timeout(LET_GO_S):
            done = await in_thread(work)
        after = tools.reader.memory().page_cache
    except TimeoutError:
        text = (
            f"Letting go of the cached weights of {names} takes longer than {duration(LET_GO_S)}; it is not waited for."
        )
        books.notice(Level.WARNING, "page_cache_slow", text, left[0].name)
    except (SparkdashError, OSError) as error:
        text = f"The cached weights of {names} were not let go of: {error}"
        books.notice(Level.WARNING, "page_cache_kept", text, left[0].name)
    else:
        books.notice(Level.INFO, "page_cache_dropped", _let_go(done, names, before, after), left[0].name)


def _let_go(done: pagecache.LetGo, names: str, before: int | None, after: int | None) -> str:
    skipped = f", {done.skipped} skipped" if done.skipped else ""
    cached = "" if before is None or after is None else f" Cached on the box: {gib(before)} before, {gib(after)} after."
    files = "1 weight file" if done.files == 1 else f"{done.files} weight files"
    return f"The page cache was told to let go of {files} of {names} ({gib(done.size)}{skipped}).{cached}"


def _weights(tools: Tools, profiles: Iterable[Profile]) -> set[ModelRef]:
    containerised = tools.runtime.containerised
    return {ref for each in profiles for ref in (each.weights if containerised else each.used_models)}


def _files(refs: Iterable[ModelRef], hf_home: Path) -> set[Path]:
    return {file for ref in refs for file in weights_here.files(ref, hf_home)}


def tell(books: Books, profile: str, left: Leftovers) -> None:
    """Say which processes outlived an engine, what became of them, and whether that is all."""
    if left.ended:
        text = f"{profile} left {_processes(left.ended)} behind; ended now."
        books.notice(Level.WARNING, "orphan_ended", text, profile)
    if left.stuck:
        text = (
            f"{profile} left {_processes(left.stuck)} behind, and not even SIGKILL ends that: stuck in the kernel, most "
            "often in the GPU's driver (`dmesg`), or another user's. Its memory may come back only with a restart of the box."
        )
        books.notice(Level.ERROR, "orphan_stuck", text, profile)
    if left.unseen:
        text = (
            f"Whether {profile} left processes behind is not known: the look at all processes of this box was late. "
            "If its memory does not come back, the next start of the daemon looks again and ends them."
        )
        books.notice(Level.WARNING, "orphan_unknown", text, profile)


def _processes(pids: tuple[int, ...]) -> str:
    return f"orphan pid {pids[0]}" if len(pids) == 1 else f"orphan pids {', '.join(map(str, pids))}"
