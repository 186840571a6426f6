"""Large free blocks before a load: looked at, won back where they are few, and the load refused where that fails.

The order is from what costs least: cached weights that no engine uses, then those of the newcomer too (it reads them
again from the disk), then all caches and compaction, as root, where the owner installed the memory helper.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Literal

from sparkdash.domain.engine import Engine
from sparkdash.domain.event import Level
from sparkdash.domain.memory import BLOCK
from sparkdash.domain.profile import Profile
from sparkdash.supervisor.decide import contiguity
from sparkdash.supervisor.decide.contiguity import BlockDemand
from sparkdash.supervisor.memory import cache_eviction
from sparkdash.supervisor.tools import Tools
from sparkdash.units import gib

Mode = Literal["refuse", "warn", "off"]


async def shortage_mode(tools: Tools) -> Mode:
    """Return the owner's choice, else a refusal where GPU and CPU share memory: it was seen nowhere else."""
    if tools.settings.contiguity is not None:
        return tools.settings.contiguity
    gpu = (await tools.reader.gpu()).gpu
    return "refuse" if gpu is not None and gpu.unified else "off"


def blocks_asked(tools: Tools, profile: Profile) -> BlockDemand:
    if not profile.gpu:
        return BlockDemand(0, "it uses no GPU")
    return contiguity.blocks_for(tools.needs(profile).room_bytes)


async def enough_for_all(tools: Tools, loads: Iterable[Profile]) -> bool:
    """Whether the free blocks do for all these loads at once; True where nothing is refused for blocks."""
    seen, wanted = tools.reader.contiguity(), sum(blocks_asked(tools, each).blocks for each in loads)
    return seen is None or seen.blocks >= wanted or await shortage_mode(tools) != "refuse"


SPARE = 4
"""Factor for the first eviction: only part of what the kernel gets back completes a large block."""
COMPACTED = "Caches were dropped and memory compacted."
FILES_S = 5.0

WaitReporter = Callable[[str | None, float | None], None]
"""Tells what is waited for, and until when at most; Unix seconds."""


async def check_before_stop(tools: Tools, target: Profile, leave: Iterable[Engine]) -> None:
    """Refuse, before anything is stopped, what even the leaving engines cannot make room for. Raises AdmissionError."""
    needs = [
        tools.needs(tools.registry.started[e.profile]).total_bytes for e in leave if e.profile in tools.registry.started
    ]
    if needs and None not in needs:  # without evictions, the look before the start does the same
        await ensure_blocks(tools, target, coming_bytes=sum(filter(None, needs)))


async def ensure_blocks(
    tools: Tools, target: Profile, told: WaitReporter = lambda *_: None, *, coming_bytes: int = 0
) -> None:
    """Make sure of enough large blocks for the start; `coming_bytes` others give back. Raises AdmissionError."""
    seen = tools.reader.contiguity()
    wanted = blocks_asked(tools, target)
    if seen is None or contiguity.enough(seen.blocks, wanted, coming_bytes):
        return
    what = await shortage_mode(tools)
    if what in (("off", "warn") if coming_bytes else ("off",)):  # a warning is given before the start
        return
    tried: list[str] = []
    before = seen.blocks
    told(f"large blocks of memory ({before} of {wanted.blocks})", None)
    async for did in _win(tools, target, (wanted.blocks - before) * BLOCK):
        tried.append(did)
        seen = tools.reader.contiguity() or seen
        if contiguity.enough(seen.blocks, wanted, coming_bytes):
            text = f"Free 32 MiB blocks went from {before} to {seen.blocks}. {' '.join(tried)}"
            tools.registry.notice(Level.INFO, "blocks_won", text, target.name)
            break
    told(None, None)
    if contiguity.enough(seen.blocks, wanted, coming_bytes):
        return
    available = tools.reader.memory().available
    if what == "refuse":
        raise contiguity.refusal(target.name, seen.blocks, wanted, available, tried, as_root=COMPACTED in tried)
    text = contiguity.warning(target.name, seen.blocks, wanted, available)
    tools.registry.notice(Level.WARNING, contiguity.CODE, text, target.name)


async def _win(tools: Tools, target: Profile, lacking: int) -> AsyncIterator[str]:
    keep: Collection[Path] = ()
    with suppress(TimeoutError):  # a disk hangs: no cached file is known to be the newcomer's
        async with asyncio.timeout(FILES_S):
            keep = await cache_eviction.weight_files(tools, target)
    steps = (
        (lacking * SPARE, keep, "no engine uses"),
        (None, keep, "no engine uses"),
        (None, (), "no engine uses yet"),
    )
    for wanted, stay, whose in steps:
        cached = tools.reader.memory().page_cache
        if cached is None or cached < lacking:
            break
        if gone := await cache_eviction.evict_weights(tools, wanted or cached, keep=stay):
            yield f"{gib(gone)} of cached weights that {whose} were let go."
    helper = tools.memory_helper
    if helper is not None and helper.available():
        done = await helper.run()
        yield COMPACTED if done.ok else f"The memory helper failed: {done.why}."
