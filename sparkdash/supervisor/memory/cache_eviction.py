"""Weights in the page cache: which of them are let go of, and when.

Cached weights are the kernel's while memory is plentiful, since they make the next load quick. They are let go of where
a load would meet a full cache (it fills with blocks too small for the GPU's driver before MemAvailable falls), and
where the owner wants that after each stop. Never a file that an engine uses or that loads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from sparkdash.domain.engine import EngineState
from sparkdash.domain.event import Level
from sparkdash.domain.metric import Memory
from sparkdash.domain.profile import ModelRef, Profile
from sparkdash.errors import SparkdashError
from sparkdash.host import local_weights
from sparkdash.host.memory import page_cache
from sparkdash.host.thread import in_thread
from sparkdash.supervisor.tools import Tools
from sparkdash.units import MIB, duration, gib

LET_GO_S = 5.0
"""Limit of letting go of cached weights: a swap does not wait longer for what the kernel would do by itself."""
LATE_S = 1.0
"""Seconds beyond LET_GO_S for a thread that ends by itself then, unless its disk hangs."""
LEAST = 64 * MIB


async def evict_weights(tools: Tools, bytes_wanted: int, *, keep: Collection[Path] = ()) -> int:
    """Evict cached weights that no engine uses and that are not `keep`; return the bytes. Never fails."""
    if bytes_wanted < LEAST:
        return 0
    hf_home, used, others = (
        tools.settings.hf_home.expanduser(),
        _weights(tools, _in_use(tools)),
        list(tools.catalog.profiles.values()),
    )
    known = _weights(tools, others)

    def work() -> int | None:
        stay = {file.resolve() for file in keep} | _files(used, hf_home)
        theirs = _files(known, hf_home)
        return page_cache.forget_up_to(
            eviction_order(local_weights.cached_blobs(hf_home), theirs, stay), bytes_wanted, LET_GO_S
        )

    try:
        before = tools.reader.memory().page_cache
        async with asyncio.timeout(LET_GO_S + LATE_S):  # a disk that hangs
            gone = await in_thread(work)
        if gone is None:  # not countable file by file: the fall of the box's cache instead
            after = tools.reader.memory().page_cache
            gone = 0 if before is None or after is None else max(0, before - after)
    except (SparkdashError, OSError, TimeoutError):
        return 0
    if gone >= LEAST:
        text = f"Let {gib(gone)} of cached weights go before the load."
        tools.registry.notice(Level.INFO, "page_cache_dropped", text)
    return gone


async def evict_before_load(tools: Tools, target: Profile) -> int:
    """Let go of weights that no engine uses, as far as `target` would meet them; the bytes let go of."""
    wanted = shortage(tools.reader.memory(), tools.needs(target).room_bytes or 0, tools.reserve_bytes)
    if wanted < LEAST or not await shares_memory(tools, target):
        return 0
    return await evict_weights(tools, wanted, keep=await weight_files(tools, target))


async def shares_memory(tools: Tools, profile: Profile) -> bool:
    """Whether an engine takes what it needs from the box's own memory, as on a GB10 or without a GPU."""
    if not profile.gpu:
        return True
    with suppress(SparkdashError):
        gpu = (await tools.reader.gpu()).gpu
        return gpu is None or gpu.unified
    return False


def short(tools: Tools, still_takes: int) -> bool:
    """Whether a load that still takes so many bytes will meet the page cache."""
    return shortage(tools.reader.memory(), still_takes, tools.reserve_bytes) > 0


def shortage(memory: Memory, takes: int, kept: int) -> int:
    """Return the bytes of page cache in the way of a load that takes `takes`, with `kept` staying free."""
    return max(0, min(takes + kept - memory.free, memory.page_cache or 0))


async def unshared_weight_files(tools: Tools, profile: Profile) -> set[Path]:
    """Return the profile's weight files that no other engine reads too."""
    refs, hf_home = _weights(tools, [profile]), tools.settings.hf_home.expanduser()
    others = _weights(tools, [each for each in _in_use(tools) if each.name != profile.name])
    return await in_thread(lambda: _files(refs, hf_home) - _files(others, hf_home))


async def weight_files(tools: Tools, profile: Profile) -> set[Path]:
    """Return the profile's weight files on this box; none where the disk does not answer within LET_GO_S."""
    refs, hf_home = _weights(tools, [profile]), tools.settings.hf_home.expanduser()
    with suppress(TimeoutError):
        async with asyncio.timeout(LET_GO_S):
            return await in_thread(lambda: _files(refs, hf_home))
    return set()


def eviction_order(cached: Iterable[Path], of_profiles: Iterable[Path], stay: Collection[Path]) -> list[Path]:
    """Sort the files that may go: first files that no profile uses."""
    theirs = set(of_profiles) - set(stay)
    return [*sorted(set(cached) - theirs - set(stay)), *sorted(theirs)]


async def evict_after_stop(tools: Tools, left: Sequence[Profile], comes: Profile | None) -> None:
    """Evict the weights of engines that left, unless another engine or `comes` reads them. Never fails."""
    registry, hf_home, names = (
        tools.registry,
        tools.settings.hf_home.expanduser(),
        ", ".join(each.name for each in left),
    )
    stay = _in_use(tools)
    old, kept = _weights(tools, left), _weights(tools, [*stay, *([comes] if comes else [])])

    def work() -> page_cache.ForgottenFiles:
        return page_cache.forget_files(sorted(_files(old, hf_home) - _files(kept, hf_home)), LET_GO_S)

    try:
        before = tools.reader.memory().page_cache
        async with asyncio.timeout(LET_GO_S):
            done = await in_thread(work)
        after = tools.reader.memory().page_cache
    except TimeoutError:
        text = (
            f"Letting go of the cached weights of {names} takes longer than {duration(LET_GO_S)}; it is not waited for."
        )
        registry.notice(Level.WARNING, "page_cache_slow", text, left[0].name)
    except (SparkdashError, OSError) as error:
        text = f"The cached weights of {names} were not let go of: {error}"
        registry.notice(Level.WARNING, "page_cache_kept", text, left[0].name)
    else:
        registry.notice(Level.INFO, "page_cache_dropped", _dropped(done, names, before, after), left[0].name)


def _dropped(done: page_cache.ForgottenFiles, names: str, before: int | None, after: int | None) -> str:
    skipped = f", {done.skipped} skipped" if done.skipped else ""
    cached = "" if before is None or after is None else f" Cached on the box: {gib(before)} before, {gib(after)} after."
    files = "1 weight file" if done.files == 1 else f"{done.files} weight files"
    return f"The page cache was told to let go of {files} of {names} ({gib(done.size)}{skipped}).{cached}"


def _weights(tools: Tools, profiles: Iterable[Profile]) -> set[ModelRef]:
    containerised = tools.runtime.containerised
    return {ref for each in profiles for ref in (each.weights if containerised else each.used_models)}


def _files(refs: Iterable[ModelRef], hf_home: Path) -> set[Path]:
    return {file for ref in refs for file in local_weights.weight_files_of(ref, hf_home)}


def _in_use(tools: Tools) -> list[Profile]:
    registry = tools.registry
    return [
        registry.started[each.profile] for each in registry.engines.values() if each.state is not EngineState.FAILED
    ]
