"""The engine as a process: its log, its port, its signals, its claim on memory, and every animal of the zoo."""

import asyncio
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from leaping import LeapingClock
from simulated import serving

from sparkdash.domain.profile import EngineKind, Profile
from sparkdash.engines import registry
from sparkdash.errors import ProfileError
from sparkdash.sim.faults import behaviour
from sparkdash.sim.process import read_claims
from sparkdash.telemetry.exposition import Scrape
from sparkdash.units import GIB
from tests.sim.conftest import poll, profile_of, scrape

READY = "Application startup complete."
Start = Callable[[Profile], Awaitable[Any]]


async def test_the_log_is_read_as_vllms(start: Start) -> None:
    child = await start(profile_of(load_s=0.5, acceptance=(0.7,)))
    await child.until(READY)
    adapter = registry.adapter(EngineKind.SIM)
    seen = [progress for line in child.lines if (progress := adapter.read_log(line))]
    assert [*dict.fromkeys(p.stage for p in seen)] == ["weights", "compile", "kv", "graphs", "warmup", "http", "ready"]
    shards = [p.fraction for p in seen if "checkpoint shards" in p.detail]
    assert shards == sorted(shards)
    assert (shards[0], shards[-1]) == (0, 1)
    assert any("SIMULATED" in line for line in child.lines)


async def test_clients_are_served_once_it_is_ready(start: Start) -> None:
    child = await start(profile_of(load_s=0.5, memory_gib=64))
    async with httpx.AsyncClient(base_url=child.url, timeout=60) as http:
        await child.until("33% Completed")
        with pytest.raises(httpx.ConnectError):
            await http.get("/health")
        await child.until(READY)
        assert (await http.get("/health")).status_code == 200
    await poll(
        lambda: [(claim.profile, claim.memory) for claim in read_claims(child.folder)] == [("rehearsal", 64 * GIB)]
    )
    child.process.send_signal(signal.SIGTERM)
    assert await child.rest() == 0
    assert list(child.folder.iterdir()) == []
    with socket.create_server(("127.0.0.1", child.port)):
        pass


async def test_a_taken_port_ends_it_with_vllms_words(start: Start, unused_tcp_port: int) -> None:
    with socket.create_server(("127.0.0.1", unused_tcp_port)):
        taken = await start(profile_of())
        assert await taken.rest() == 1
    assert registry.adapter(EngineKind.SIM).classify(taken.lines, 1).code == "port_in_use"


async def test_dies_loading(start: Start) -> None:
    child = await start(profile_of(load_s=0.3, fault="dies-loading"))
    assert await child.rest() == 1
    assert registry.adapter(EngineKind.SIM).classify(child.lines, 1).code == "out_of_memory"
    assert not any(READY in line for line in child.lines)


@pytest.mark.parametrize(
    ("argument", "says"),
    [
        ('{"name": "x", "engine": "sim", "sim": {"fault": "purple"}}', "no fault 'purple'. Faults: never-ready, dies-"),
        ('{"name": "x", "engine": "abacus"}', "--profile-json is no profile: engine"),
        ("{", "--profile-json is no profile"),
    ],
)
async def test_a_wrong_call_is_told_shortly(argument: str, says: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "sparkdash.sim", "--port", "0", "--profile-json", argument),
        stderr=asyncio.subprocess.PIPE,
    )
    _, error = await process.communicate()
    assert process.returncode == 2
    assert says in error.decode()
    assert len(error.decode().splitlines()) == 1


COUNTERS = (
    "vllm:prompt_tokens_total", "vllm:prompt_tokens_by_source_total", "vllm:prompt_tokens_cached_total",
    "vllm:generation_tokens_total", "vllm:iteration_tokens_total_count", "vllm:request_success_total",
    "vllm:num_preemptions_total",
)  # fmt: skip
"""All that a working engine moves, but the use of its KV cache."""
RUNNING, KV = "vllm:num_requests_running", "vllm:kv_cache_usage_perc"


def test_an_unknown_animal_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ProfileError) as caught:
        behaviour("purple")
    assert "dies-loading" in caught.value.text()


@asynccontextmanager
async def asking(url: str, tokens: int) -> AsyncIterator[asyncio.Task[httpx.Response]]:
    """A chat under way."""
    body = {"max_tokens": tokens, "ignore_eos": True, "messages": [{"role": "user", "content": f"{tokens}"}]}
    async with httpx.AsyncClient(timeout=60, verify=False) as http:
        yield asyncio.create_task(http.post(f"{url}/v1/chat/completions", json=body))


async def test_in_a_long_prefill_only_the_use_of_the_cache_moves() -> None:
    """Every counter is flat for twenty minutes of small steps; then the whole prompt counts with the first token."""
    scrapes: list[tuple[float, Scrape]] = []
    clock = LeapingClock(turns=50)
    async with (
        serving(profile_of(fault="long-prefill", kv_tokens=32768), clock=clock) as (app, url),
        asking(url, 4) as asked,
    ):
        while not asked.done():
            seen = await scrape(url)
            scrapes.append((clock.now(), seen))
        assert app.engine.counters.ttft.total == pytest.approx(1200, rel=0.01)
        prefilling = [(at, seen) for at, seen in scrapes if 0 < at < 1190]
        used = [seen.total(KV) or 0 for _, seen in prefilling if seen.total(RUNNING)]
        assert len(set(used)) > 10, "it rises step by step"
        assert used == sorted(used)
        assert {seen.total(name) for _, seen in prefilling for name in COUNTERS} == {0}
        last = await scrape(url)
        assert last.total("vllm:prompt_tokens_total") == 8192 - 4


async def test_the_profile_says_when_its_fault_begins(virtual_clock: Any) -> None:
    profile = profile_of(fault="long-prefill", fault_after_tokens=20)
    async with serving(profile, clock=virtual_clock) as (app, url):
        for tokens, begun in ((19, False), (20, True)):
            async with asking(url, tokens) as asked:
                assert (await asked).status_code == 200
            assert (app.behaviour.prefill_s > 0) is begun
