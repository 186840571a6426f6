"""The engine as a process: its log, its port, its signals, its claim on memory, and every animal of the zoo."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from sparkdash.domain.profile import EngineKind, Profile
from sparkdash.engines import registry
from sparkdash.sim.process import read_claims
from sparkdash.units import GIB

READY = "Application startup complete."
Start = Callable[[Profile], Awaitable[Any]]
MakeProfile = Callable[..., Profile]
Eventually = Callable[[Callable[[], bool]], Awaitable[None]]


def chat(**more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "hello"}], **more}


async def test_the_log_is_read_as_vllms(start: Start, make_profile: MakeProfile) -> None:
    child = await start(make_profile(load_s=0.5, acceptance=(0.7,)))
    await child.until(READY)
    adapter = registry.adapter(EngineKind.SIM)
    seen = [progress for line in child.lines if (progress := adapter.read_log(line))]
    assert list(dict.fromkeys(p.stage for p in seen)) == [
        "weights",
        "compile",
        "kv",
        "graphs",
        "warmup",
        "http",
        "ready",
    ]
    shards = [p.fraction for p in seen if "checkpoint shards" in p.detail]
    assert shards == sorted(shards)
    assert (shards[0], shards[-1]) == (0, 1)
    assert any("SIMULATED" in line for line in child.lines)


async def test_clients_are_served_once_it_is_ready(
    start: Start, make_profile: MakeProfile, eventually: Eventually
) -> None:
    child = await start(make_profile(load_s=0.5, memory_gib=64))
    async with httpx.AsyncClient(base_url=child.url, timeout=60) as http:
        await child.until("33% Completed")
        with pytest.raises(httpx.ConnectError):
            await http.get("/health")
        await child.until(READY)
        assert (await http.get("/health")).status_code == 200
    await eventually(
        lambda: [(claim.profile, claim.memory) for claim in read_claims(child.folder)] == [("rehearsal", 64 * GIB)]
    )
    child.process.send_signal(signal.SIGTERM)
    assert await child.rest() == 0
    assert list(child.folder.iterdir()) == []
    with socket.create_server(("127.0.0.1", child.port)):
        pass


async def test_a_killed_process_claims_nothing(start: Start, make_profile: MakeProfile) -> None:
    child = await start(make_profile(load_s=0))
    await child.until(READY)
    child.process.kill()
    await child.rest()
    assert list(child.folder.glob("*.json"))
    assert read_claims(child.folder) == []


async def test_a_taken_port_ends_it_with_vllms_words(
    start: Start, make_profile: MakeProfile, unused_tcp_port: int
) -> None:
    with socket.create_server(("127.0.0.1", unused_tcp_port)):
        taken = await start(make_profile())
        assert await taken.rest() == 1
    assert registry.adapter(EngineKind.SIM).classify(taken.lines, 1).code == "port_in_use"


async def test_dies_loading(start: Start, make_profile: MakeProfile) -> None:
    child = await start(make_profile(load_s=0.3, fault="dies-loading"))
    assert await child.rest() == 1
    assert registry.adapter(EngineKind.SIM).classify(child.lines, 1).code == "out_of_memory"
    assert not any(READY in line for line in child.lines)


@pytest.mark.parametrize(
    ("argument", "says"),
    [
        (
            '{"name": "x", "engine": "sim", "sim": {"fault": "purple"}}',
            "no fault 'purple'. Faults: never-ready, dies-loading, only-chat",
        ),
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
