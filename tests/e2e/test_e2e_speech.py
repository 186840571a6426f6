"""Speech through a whole daemon: a WebSocket that comes while its model loads, and a swap under one."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import WSMsgType

from sparkdash.catalog import yaml12

pytestmark = pytest.mark.timeout(240)
SERVER = Path(__file__).parent / "speech_server.py"
LIMIT_S = 120


def profile(name: str, gate: Path) -> str:
    """A profile of the speech server, which loads until `gate` exists."""
    made = {
        "profile": name,
        "engine": "generic",
        "gpu": False,
        "command": [sys.executable, str(SERVER), "{port}", str(gate)],
        "memory": {"weights_gib": 0.1, "kv_gib": 0, "overhead_gib": 0.1, "source": "measured: 40 MiB"},
        "server": {"routes": ["realtime"], "ready_by": "health", "stop_signal": "SIGINT"},
    }
    return yaml12.dump(made)


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    return tmp_path / "loaded"


@pytest.fixture
def spark(new_daemon: Callable[..., Any], gate: Path) -> Iterator[Any]:
    """A daemon with two speech servers, one at a time."""
    daemon = new_daemon(
        runtime="process", side_by_side=False, min_dwell_s=0, drain_s=1, hold_headers_s=0.2, stop_grace_s=5
    )
    for name in ("speech", "speech-other"):
        daemon.write(name, profile(name, gate))
    yield daemon.start()
    daemon.end()


async def until_loading(spark: Any) -> None:
    await asyncio.to_thread(spark.until, lambda state: state["swap"] is not None)


async def let_go(gate: Path) -> None:
    await asyncio.to_thread(gate.touch)


async def test_a_websocket_waits_for_its_model_and_then_talks(spark: Any, gate: Path) -> None:
    async with asyncio.timeout(LIMIT_S), aiohttp.ClientSession() as session:
        asked = asyncio.ensure_future(session.ws_connect(f"{spark.url}/v1/realtime?model=speech"))
        await until_loading(spark)
        assert not asked.done()
        await let_go(gate)
        socket = await asked
        assert (await socket.receive_json()) == {"type": "session.created", "model": "speech-model"}
        await socket.send_str("hello")
        assert await socket.receive_str() == "hello"
        row = next(iter(spark.state()["requests"].values()))
        assert (row["route"], row["profile"]) == ("/v1/realtime", "speech")
        await socket.close()


@pytest.mark.full
async def test_a_swap_closes_a_websocket_after_its_drain(spark: Any, gate: Path) -> None:
    await let_go(gate)
    async with (
        asyncio.timeout(LIMIT_S),
        aiohttp.ClientSession() as session,
        session.ws_connect(f"{spark.url}/v1/realtime?model=speech") as socket,
    ):
        assert (await socket.receive_json())["type"] == "session.created"
        await asyncio.to_thread(spark.post, "/api/use", {"profile": "speech-other"})
        await socket.send_str("still here")
        assert await socket.receive_str() == "still here"
        assert (await socket.receive()).type is WSMsgType.CLOSED
    await asyncio.to_thread(spark.until, lambda state: state["engines"].get("speech-other", {}).get("state") == "ready")
