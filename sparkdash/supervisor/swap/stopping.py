"""Ending an engine so that nothing of it stays, and waiting for its memory before the next one starts.

On a GB10 memory has come back minutes after a container was gone, sometimes never; an engine that starts meanwhile
miscounts what is free (vLLM aborts when free memory grows while it profiles).
"""

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress

from sparkdash.domain.container import Leftovers
from sparkdash.domain.engine import Engine, EngineState
from sparkdash.domain.event import Level
from sparkdash.domain.memory import Basis
from sparkdash.domain.node import LOCAL
from sparkdash.domain.profile import Profile
from sparkdash.domain.swap import SwapPhase
from sparkdash.engines.generic.known_servers import described_server
from sparkdash.errors import AdmissionError, HostError, SparkdashError
from sparkdash.log import LOG
from sparkdash.supervisor.decide import refusals
from sparkdash.supervisor.decide.fit import must_be_free
from sparkdash.supervisor.memory import large_blocks
from sparkdash.supervisor.memory.footprint import on_node, read_memory
from sparkdash.supervisor.memory.large_blocks import WaitReporter
from sparkdash.supervisor.state.registry import EngineRegistry, HeldMemory, failure_of
from sparkdash.supervisor.tools import Tools
from sparkdash.units import MIB, duration, gib

MEASURE_S = 1.0
"""Limit of measuring what an engine holds: good to know, and no reason to keep a stop waiting."""


async def stop_engine(tools: Tools, engine: Engine, held: HeldMemory | None) -> None:
    """Stop and remove the engine; keep its last lines, report what outlived it. Raises HostError, shown as failed."""
    name = engine.profile
    if engine.container is not None:
        # read while it ends, so that reading does not lengthen the grace
        words = asyncio.ensure_future(tools.logbook.close(name))
        try:
            left = await tools.runtime.stop(engine.container, grace_s(tools, name), words)
        except HostError as error:
            tools.registry.not_stopped(name, failure_of(error, SwapPhase.STOP))
            raise
        finally:
            await words
        report_leftovers(tools.registry, name, left)
    tools.registry.drop(name, held)


def grace_s(tools: Tools, name: str) -> float:
    """Seconds between the stop signal and SIGKILL: the profile's own for its server, else those of the settings."""
    profile = tools.registry.started.get(name)
    server = described_server(profile) if profile else None
    return tools.settings.stop_grace_s if server is None or server.stop_s is None else server.stop_s


async def stop_all_engines(tools: Tools) -> None:
    """Stop all our containers when the daemon has ended; failures are logged, as nobody is there to be told."""
    graces = {e.container: grace_s(tools, e.profile) for e in tools.registry.engines.values() if e.container}
    graces |= {container.name: tools.settings.stop_grace_s for container in tools.registry.unadopted.values()}
    stops = (tools.runtime.stop(name, limit_s) for name, limit_s in graces.items())
    for name, ended in zip(graces, await asyncio.gather(*stops, return_exceptions=True), strict=True):
        if isinstance(ended, SparkdashError):
            LOG.exception("an engine was not stopped", container=name, code=ended.code, why=ended.text())
        elif isinstance(ended, BaseException):
            LOG.exception("an engine was not stopped", container=name, exc_info=ended)
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


def report_leftovers(registry: EngineRegistry, profile: str, left: Leftovers) -> None:
    if left.ended:
        text = f"{profile} left {_processes(left.ended)} behind; ended now."
        registry.notice(Level.WARNING, "orphan_ended", text, profile)
    if left.stuck:
        how = f": {'; '.join(left.stuck_how)}" if left.stuck_how else ""
        text = (
            f"{profile} left {_processes(left.stuck)} behind, which SIGKILL did not end{how}. "
            "What such a process holds is free once it ends."
        )
        registry.notice(Level.ERROR, "orphan_stuck", text, profile)
    if left.unremoved:
        text = f"{profile} has ended, and its container is still listed: {left.unremoved} The next start removes it."
        registry.notice(Level.WARNING, "container_left", text, profile)
    if left.pending:
        nodes = " and ".join(left.pending)
        text = (
            f"{profile} may still run on {nodes}, which does not answer. sparkdash ends it there as soon as {nodes} "
            "can be reached."
        )
        registry.notice(Level.WARNING, "removal_owed", text, profile)


def _processes(pids: tuple[int, ...]) -> str:
    return f"orphan pid {pids[0]}" if len(pids) == 1 else f"orphan pids {', '.join(map(str, pids))}"


SAMPLE_S = 0.1
NODE_SAMPLE_S = 0.5
STEADY_SAMPLES = 9
STEADY = 256 * MIB
"""Available memory that moves less over those samples is steady; an engine gives back gigabytes a second."""
STEADIES = "the memory of those who left to be steady"
TOLD_SAMPLES = 10
"""Samples between two reports of the wait: once a second."""
BACK_SAMPLES = 2
"""Enough of them when all that was held is seen to be back."""
BACK_STEADY = 128 * MIB
"""Bytes of movement over those two samples: 1.25 GiB a second."""
PATIENCE_S = 10.0
"""Seconds to wait for missing memory when the next engine fits without it."""
STOP_S = 5.0
MARGINS = {Basis.LEARNED: 0.1, Basis.DECLARED: 0.5}
"""Margins beyond the peaks of loads at the same time; declared needs were up to a quarter too low."""
BESIDE_S = 1.0
"""Seconds between two looks at what the other loads have taken."""
AGAIN_S = 60.0


async def until_loads_leave_room(tools: Tools, target: Profile, node: str = LOCAL) -> None:
    """Wait until loads under way leave room for `target` (each with its peak and a margin). Raises HostError."""
    while others := tools.registry.loading(but=target.name, on=(node,)):
        if await _loads_leave_room(tools, target, node, others):
            return
        await tools.clock.sleep(BESIDE_S)


async def _loads_leave_room(tools: Tools, target: Profile, node: str, others: Sequence[Engine]) -> bool:
    if tools.registry.debts_on(node).who or (node == LOCAL and tools.guarded.short(target.name) is not None):
        return False
    # read first: while one engine is measured, another may be given up and leave the registry
    loads = [tools.registry.started[engine.profile] for engine in others]
    peaks = [_at_most(tools, load) for load in loads]
    still = [await _may_still_take(tools, node, *each) for each in zip(others, peaks, strict=True)]
    asked = [_at_most(tools, target), tools.reserve_bytes, *still]
    if None in asked or sum(filter(None, asked)) > (await read_memory(tools, node)).available:
        return False
    return node != LOCAL or await large_blocks.enough_for_all(tools, [target, *loads])


async def _may_still_take(tools: Tools, node: str, engine: Engine, most: int | None) -> int | None:
    """Return the most that the load still takes of the node; all of it where nobody sees what it holds."""
    held = await measure_held_memory(tools, engine) if node == LOCAL else None
    return None if most is None else max(0, most - (held.took if held else 0))


def _at_most(tools: Tools, profile: Profile) -> int | None:
    need = tools.needs(profile)
    margin, room = MARGINS.get(need.basis), need.room_bytes
    return None if margin is None or room is None else int(room * (1 + margin))


async def wait_for_memory(
    tools: Tools, target: Profile, told: WaitReporter = lambda *_: None, node: str = LOCAL
) -> int:
    """Wait, up to `reclaim_s`, for the memory of engines that left; return the missing bytes. Raises HostError.

    A load that fits and takes what it was told to take begins at once. One that sizes itself by free memory needs calm.
    """
    debts, clock, limit = tools.registry.debts_on(node), tools.clock, tools.settings.reclaim_s
    asked, needs_calm = _must_be_free(tools, target, node), tools.adapter(target).sizes_by_free_memory(target)
    began, until = clock.monotonic(), clock.now() + limit
    sample_s = SAMPLE_S if node == LOCAL else NODE_SAMPLE_S
    seen: deque[int] = deque(maxlen=STEADY_SAMPLES)
    look = 0
    while debts.who:
        seen.append((await read_memory(tools, node)).available)
        missing, now = debts.missing(seen[-1]), clock.monotonic()
        look += 1
        if look % TOLD_SAMPLES == 0:
            told(_awaited(missing, node), until)
        if _is_back(missing, seen) or (asked is not None and seen[-1] >= asked and not needs_calm):
            debts.settle()
            break
        enough = now - debts.at >= limit or _goes_without(missing, seen[-1], asked, waited_s=now - began)
        if now - began >= limit or (enough and _steady(seen, STEADY_SAMPLES, STEADY)):
            return missing or 0
        await clock.sleep(sample_s)
    return 0


def _is_back(missing: int | None, seen: Sequence[int]) -> bool:
    """Whether all that was held is seen to be back, in fewer samples than where nobody measured it."""
    return missing == 0 and _steady(list(seen)[-BACK_SAMPLES:], BACK_SAMPLES, BACK_STEADY)


def _awaited(missing: int | None, node: str) -> str:
    return f"{gib(missing)} of memory to come back{on_node(node)}" if missing else STEADIES


def _goes_without(missing: int | None, available: int, asked: int | None, *, waited_s: float) -> bool:
    """Whether the next engine fits without the missing memory, and that was waited for long enough."""
    fits = missing is None if asked is None else available >= asked
    return fits and (missing is None or waited_s >= PATIENCE_S)


async def after_stop(tools: Tools, told: WaitReporter) -> None:
    """Wait shortly for memory when no engine comes, and report what is missing; the next start waits further."""
    debts, clock = tools.registry.debts_on(LOCAL), tools.clock
    until, then = clock.monotonic() + STOP_S, clock.now() + STOP_S
    while missing := debts.missing(tools.reader.memory().available):
        told(f"{gib(missing)} of memory to come back", then)
        if clock.monotonic() >= until:
            lost = _not_returned_text(tools, LOCAL, missing)
            text = f"{lost} {duration(STOP_S)} after the stop. The next start waits for it."
            tools.registry.notice(Level.WARNING, "memory_not_returned", text, debts.who[-1])
            return
        await clock.sleep(SAMPLE_S)


async def admit_load(tools: Tools, target: Profile, missing: Mapping[str, int]) -> None:
    """Look at memory once more before the start. Raises AdmissionError (`does_not_fit`, `memory_not_returned`)."""
    for node, lacks in missing.items():
        available, asked = (await read_memory(tools, node)).available, _must_be_free(tools, target, node)
        if lacks and (asked is None or available < asked):
            raise _not_returned(tools, target, node, lacks, available)
        if asked is not None and available < asked:
            raise _does_not_fit(tools, target, node, available)
    for node, lacks in missing.items():
        if lacks:
            text = f"{_not_returned_text(tools, node, lacks)}. {target.name} fits all the same and is started."
            tools.registry.notice(Level.WARNING, "memory_not_returned", text, tools.registry.debts_on(node).who[-1])
        # now the newcomer takes memory, and returned memory can no longer be told apart
        tools.registry.debts_on(node).settle()


def _must_be_free(tools: Tools, target: Profile, node: str) -> int | None:
    there = (e for e in tools.registry.engines.values() if e.container and e.state is not EngineState.FAILED)
    others = [engine for engine in there if engine.profile != target.name and node in engine.nodes]
    return must_be_free(tools.needs(target), tools.reserve_bytes, alone=not others)


def _does_not_fit(tools: Tools, target: Profile, node: str, available: int) -> AdmissionError:
    needs = gib(tools.needs(target).room_bytes)
    return AdmissionError(
        f"{target.name} needs {needs} and {gib(tools.reserve_bytes)} are kept in reserve; "
        f"{gib(available)} are available{on_node(node)}.",
        code="does_not_fit",
        status=503,
        holders=refusals.holders(tools.foreign()) if node == LOCAL else None,
        hint="Stop what else holds memory, choose a smaller context or KV cache, or lower `reserve_gib`.",
    )


def _not_returned(tools: Tools, target: Profile, node: str, missing: int, available: int) -> AdmissionError:
    needs = tools.needs(target).room_bytes
    what = "a need that is not known" if needs is None else f"a need of {gib(needs)}"
    return AdmissionError(
        f"{_not_returned_text(tools, node, missing)}; starting {target.name}, with {what} and "
        f"{gib(tools.reserve_bytes)} kept in reserve, is not risked with {gib(available)} available.",
        code="memory_not_returned",
        status=503,
        retry_after=AGAIN_S,
        hint="It may still come: try again in a minute. `nvidia-smi` names processes that hold memory; "
        "what nobody holds comes back with a restart of the box.",
    )


def _not_returned_text(tools: Tools, node: str, missing: int) -> str:
    debts = tools.registry.debts_on(node)
    held = debts.held
    return f"{gib(missing)}{f' of {gib(held)}' if held else ''} not returned by {', '.join(debts.who)}{on_node(node)}"


def _steady(seen: Sequence[int], samples: int, within: int) -> bool:
    return len(seen) == samples and max(seen) - min(seen) <= within
