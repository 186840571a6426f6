"""Engines that are frozen while they serve, with real clients, a real daemon and SIGSTOP."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from sparkdash import paths
from sparkdash.host.processes import leftovers

pytestmark = pytest.mark.full

PROGRAM = Path(__file__).with_name("impatient_daemon.py")
SIM = """\
profile: {name}
engine: sim
gpu: false
on_stuck: {on_stuck}
memory: {{weights_gib: 0.1, kv_gib: 0.1, overhead_gib: 0.1, source: test}}
sim: {{load_s: 0.1, memory_gib: 0.1, speeds: [{{context: 0, decode_tok_s: 20, prefill_tok_s: 4000}}]}}
"""
"""Slow enough to be frozen in the middle of an answer."""


def pids(daemon: Any, profile: str) -> list[int]:
    engines = leftovers.processes_of_owner(paths.owner(daemon.root / "state"))
    return [pid for mark, births in engines.items() if mark.endswith(f"/sparkdash-{profile}") for pid in births]


def tell(daemon: Any, profile: str, what: signal.Signals) -> None:
    found = pids(daemon, profile)
    assert found
    for pid in found:
        os.kill(pid, what)


def body(profile: str, *, stream: bool) -> dict[str, Any]:
    return {"model": profile, "stream": stream, "max_tokens": 60, "messages": [{"role": "user", "content": "hello"}]}


@asynccontextmanager
async def begun(client: httpx.AsyncClient, profile: str) -> AsyncIterator[AsyncIterator[str]]:
    """A stream of which the first words have come; the rest of its lines."""
    async with client.stream("POST", "/v1/chat/completions", json=body(profile, stream=True)) as reply:
        lines = reply.aiter_lines()
        async for line in lines:
            if '"content"' in line and '"content":""' not in line:
                break
        yield lines


def newest(daemon: Any, profile: str) -> dict[str, Any]:
    incidents = daemon.get(f"/api/incidents?profile={profile}")["incidents"]
    return incidents[0] if incidents else {}


def test_a_frozen_engine_is_repaired_or_told_and_every_request_has_its_end(new_daemon: Callable[..., Any]) -> None:
    """`north` is started again: its stream ends with the reason, and who had no byte is answered whole. Of `south`, which
    is frozen at the same time, it is only told: its stream goes on to its end once it moves again."""
    daemon = new_daemon(runtime="process", stop_grace_s=1, reserve_gib=0.1)
    daemon.program = (str(PROGRAM),)
    daemon.write("north", SIM.format(name="north", on_stuck="restart"))
    daemon.write("south", SIM.format(name="south", on_stuck="tell"))
    daemon.start()
    for name in ("north", "south"):
        daemon.post("/api/use", {"profile": name})
        daemon.until(lambda state, name=name: state["engines"].get(name, {}).get("state") == "ready")
    asyncio.run(drive(daemon))
    incident = newest(daemon, "north")
    assert [step["step"] for step in incident["steps"]] == ["evidence", "cancel", "end"]
    assert incident["end"] == "restarted"
    assert Path(incident["evidence"]).is_dir()
    assert newest(daemon, "south")["end"] == "moved"
    assert daemon.state()["repairs"]["every"]["n"] == 1
    assert "north" in daemon.sparkdash("history", "--by", "incident").stdout


async def drive(daemon: Any) -> None:
    """Freeze both in the middle of a stream, and thaw one."""
    async with (
        httpx.AsyncClient(base_url=daemon.url, timeout=90) as client,
        begun(client, "north") as north,
        begun(client, "south") as south,
    ):
        tell(daemon, "north", signal.SIGSTOP)
        tell(daemon, "south", signal.SIGSTOP)
        before = pids(daemon, "south")
        unary = asyncio.create_task(client.post("/v1/chat/completions", json=body("north", stream=False)))
        rest = "\n".join([line async for line in north])
        assert '"code":"engine_stuck"' in rest
        assert "north stopped making progress: " in rest
        answer = await unary
        assert answer.status_code == 200
        assert json.loads(answer.content)["choices"][0]["finish_reason"] in ("stop", "length")
        await asyncio.to_thread(daemon.until, lambda state: _step(state, "south") == "watch")
        assert pids(daemon, "south") == before
        tell(daemon, "south", signal.SIGCONT)
        rest = "\n".join([line async for line in south])
        assert rest.rstrip().endswith("data: [DONE]")
        assert "error" not in rest


def _step(state: dict[str, Any], profile: str) -> str | None:
    live = state["engines"][profile]["liveness"]
    return live["step"] if live else None
