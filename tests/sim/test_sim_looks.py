"""Each animal of the zoo as a look sees it: a real process, real HTTP, the daemon's own telemetry."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from sparkdash.domain.engine import Engine, EngineState
from sparkdash.domain.metric import Memory
from sparkdash.domain.profile import EngineKind
from sparkdash.engines.registry import adapter_of
from sparkdash.host.box import GpuReading
from sparkdash.host.processes.proc import family
from sparkdash.settings import Settings
from sparkdash.supervisor.decide.judge import EngineSignals, HealthAnswer
from sparkdash.supervisor.probe import HeldRequests, SignalReader
from sparkdash.supervisor.state.clock import SystemClock
from sparkdash.telemetry import Collector, CollectorInputs
from sparkdash.upstream import Upstream

STILL = 5
"""Looks in a row that show the same."""
Seen = list[EngineSignals]


def stands_still(seen: Seen) -> bool:
    last = seen[-STILL:]
    same = {(look.progress, look.prompt_progress, look.kv_used) for look in last}
    return len(last) == STILL and len(same) == 1 and all(look.running == 1 for look in last)


def is_stopped(seen: Seen) -> bool:
    """All processes of the engine are stopped, and its server is silent."""
    look = seen[-1]
    return bool(look.stopped) and look.stopped == look.processes and look.health is HealthAnswer.SILENT


def hangs_idle(seen: Seen) -> bool:
    """It stands still, its server answers, and its processes do nothing."""
    cpu = [look.cpu_s or 0.0 for look in seen[-STILL:]]
    return (
        stands_still(seen)
        and seen[-1].health is HealthAnswer.WELL
        and bool(seen[-1].answers)
        and cpu[-1] - cpu[0] < 0.2
    )


def spins(seen: Seen) -> bool:
    cpu = [look.cpu_s or 0.0 for look in seen[-STILL:]]
    return stands_still(seen) and cpu[-1] > cpu[0]


def only_waits(seen: Seen) -> bool:
    look = seen[-1]
    return look.running == 0 and bool(look.waiting) and look.deferred == 0


def fills(seen: Seen) -> bool:
    last = [look for look in seen if look.running == 1][-STILL:]
    uses = [look.kv_used or 0.0 for look in last]
    return len(last) == STILL and uses[-1] > uses[0] > 0 and len({look.progress for look in last}) == 1


class Box:
    """A box without a GPU."""

    def memory(self) -> Memory:
        return Memory(total=1, available=1, free=1)

    async def gpu(self) -> GpuReading:
        return GpuReading(gpu=None)

    def engine_bytes(self, *_: object) -> None:
        return None


@asynccontextmanager
async def looking(url: str, pid: int) -> AsyncIterator[Callable[[], Awaitable[EngineSignals]]]:
    engine = Engine(
        profile="a",
        kind=EngineKind.SIM,
        state=EngineState.READY,
        since=0,
        fingerprint="f",
        url=url,
        container="a",
        in_flight=1,
    )

    async def pids(_: str) -> set[int]:
        return family(pid)

    async def nothing() -> dict[Any, Any]:
        return {}

    async with Upstream() as upstream:
        telemetry = Collector(
            CollectorInputs(
                upstream=upstream,
                engines=lambda: {"a": engine},
                reader=Box(),  # type: ignore[arg-type]
                pids=pids,
                foreign=nothing,
                publish=lambda _: None,
                settings=lambda: Settings(sample_s=0.1),
            )
        )
        registry = SimpleNamespace(engines={"a": engine})
        tools: Any = SimpleNamespace(
            clock=SystemClock(),
            runtime=SimpleNamespace(pids=pids),
            upstream=upstream,
            adapter=adapter_of,
            registry=registry,
            gpu_figures=lambda: telemetry.gpu,
        )
        looks = SignalReader(tools, lambda _: HeldRequests(1, 0, None), telemetry.figures)
        profile: Any = SimpleNamespace(name="a", engine=EngineKind.SIM)
        running = asyncio.create_task(telemetry.run())
        try:
            yield lambda: looks.look(profile, engine)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize(
    ("fault", "looks_so"),
    [
        ("frozen", is_stopped),
        ("frozen-core", hangs_idle),
        ("livelock", spins),
        ("waiting-only", only_waits),
        ("long-prefill", fills),
    ],
)
async def test_a_look_sees_what_is_the_matter(
    start: Any, make_profile: Any, fault: str, looks_so: Callable[[Seen], bool]
) -> None:
    """Sooner or later the signals are those by which this animal is known."""
    child = await start(make_profile(fault=fault, load_s=0, memory_gib=0.01, time_scale=20))
    await child.until("Application startup complete")
    body = {
        "model": "alias",
        "messages": [{"role": "user", "content": "hello"}],
        "max_tokens": 400,
    }
    async with httpx.AsyncClient(base_url=child.url, timeout=None, verify=False) as client:
        asking = [asyncio.create_task(client.post("/v1/chat/completions", json=body))]
        async with looking(child.url, child.process.pid) as look:
            seen = [await look()]
            while not looks_so(seen):
                if fault == "waiting-only" and asking[-1].done():
                    asking.append(asyncio.create_task(client.post("/v1/chat/completions", json=body)))
                await asyncio.sleep(0.1)
                seen.append(await look())
        for each in asking:
            each.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
