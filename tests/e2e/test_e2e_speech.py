"""Speech through a whole daemon: a WebSocket and an upload that come while their model loads, and a swap under one.

Each with plain processes and with containers of a real podman.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import WSMsgType

from sparkdash.catalog import yaml12

pytestmark = pytest.mark.timeout(240)
os.environ.setdefault("CONTAINERS_CONF", str(Path(__file__).parents[1] / "podman" / "containers.conf"))

SERVER = Path(__file__).parent / "speech_server.py"
SOUND = bytes(range(256)) * 20_000
LIMIT_S = 120


def profile(name: str, gate: Path, **place: Any) -> str:
    """A profile of the speech server, which loads until `gate` exists."""
    return str(
        yaml12.dump(
            {
                "profile": name,
                "engine": "generic",
                "gpu": False,
                "command": [sys.executable, str(SERVER), "{port}", str(gate)],
                "memory": {"weights_gib": 0.1, "kv_gib": 0, "overhead_gib": 0.1, "source": "measured: 40 MiB"},
                "server": {"routes": ["transcriptions", "realtime"], "ready_by": "health", "stop_signal": "SIGINT"},
                **place,
            }
        )
    )


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    return tmp_path / "loaded"


@pytest.fixture(params=["process", pytest.param("podman", marks=pytest.mark.podman)])
def spark(new_daemon: Callable[..., Any], gate: Path, request: pytest.FixtureRequest) -> Iterator[Any]:
    """A daemon with two speech servers: plain processes, or containers of a real podman, which has their names once."""
    place: dict[str, Any] = {}
    if request.param == "podman":
        hostfs = request.getfixturevalue("hostfs")
        place = {"image": hostfs.image, "mounts": hostfs.mounts(Path(sys.prefix), SERVER.parent, gate.parent)}
    daemon = new_daemon(
        runtime=request.param, side_by_side=False, min_dwell_s=0, drain_s=1, hold_headers_s=0.2, stop_grace_s=5
    )
    daemon.write("speech", profile("speech", gate, **place))
    daemon.write("speech-other", profile("speech-other", gate, **place))
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
async def test_an_upload_waits_for_its_model_with_the_name_behind_the_file(spark: Any, gate: Path) -> None:
    form = aiohttp.FormData()
    form.add_field("file", io.BytesIO(SOUND), filename="a.wav")
    form.add_field("model", "speech")
    async with asyncio.timeout(LIMIT_S), aiohttp.ClientSession() as session:
        asked = asyncio.create_task(session.post(f"{spark.url}/v1/audio/transcriptions", data=form))
        await until_loading(spark)
        await let_go(gate)
        reply = await asked
        assert (await reply.json())["text"] == f"speech-model {hashlib.sha256(SOUND).hexdigest()}"


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
