"""Speech through a whole daemon: a WebSocket that comes while its model loads."""

import asyncio
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from sparkdash.catalog import yaml12

pytestmark = pytest.mark.timeout(240)
SERVER = Path(__file__).parent / "speech_server.py"
LIMIT_S = 120


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    return tmp_path / "loaded"


@pytest.fixture
def spark(new_daemon: Callable[..., Any], gate: Path) -> Iterator[Any]:
    """A daemon with a speech server, which loads until `gate` exists."""
    profile = {
        "profile": "speech",
        "engine": "generic",
        "gpu": False,
        "command": [sys.executable, str(SERVER), "{port}", str(gate)],
        "memory": {"weights_gib": 0.1, "kv_gib": 0, "overhead_gib": 0.1, "source": "measured: 40 MiB"},
        "server": {"routes": ["realtime"], "ready_by": "health", "stop_signal": "SIGINT"},
    }
    daemon = new_daemon(runtime="process", hold_headers_s=0.2, stop_grace_s=5)
    daemon.write("speech", yaml12.dump(profile))
    yield daemon.start()
    daemon.end()


async def test_a_websocket_waits_for_its_model_and_then_talks(spark: Any, gate: Path) -> None:
    async with asyncio.timeout(LIMIT_S), aiohttp.ClientSession() as session:
        asked = asyncio.ensure_future(session.ws_connect(f"{spark.url}/v1/realtime?model=speech"))
        await asyncio.to_thread(spark.until, lambda state: state["swap"] is not None)
        assert not asked.done()
        await asyncio.to_thread(gate.touch)
        socket = await asked
        assert (await socket.receive_json()) == {"type": "session.created", "model": "speech-model"}
        await socket.send_str("hello")
        assert await socket.receive_str() == "hello"
        row = next(iter(spark.state()["requests"].values()))
        assert (row["route"], row["profile"]) == ("/v1/realtime", "speech")
        await socket.close()
