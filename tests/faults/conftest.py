"""The real supervisor, gateway and podman runtime around a podman that fails where a test says so."""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from long_answers import Pulse
from serving import deserted, until

from sparkdash import listen
from sparkdash.bus import Bus
from sparkdash.catalog import Catalog
from sparkdash.domain.metric import Memory
from sparkdash.domain.profile import EngineKind, MemoryNeed, ModelRef, Mount, Profile
from sparkdash.domain.state import DaemonInfo, Snapshot
from sparkdash.domain.swap import SwapCause
from sparkdash.engines.argv import container_name
from sparkdash.gateway.app import Gateway
from sparkdash.gateway.deps import Deps
from sparkdash.gateway.http.exchange import BodyBudget
from sparkdash.host import command
from sparkdash.host.box import BoxReader, GpuReading, HostReader
from sparkdash.host.podman.podman import Podman
from sparkdash.host.processes import ending, leftovers
from sparkdash.host.runtime import OneNode
from sparkdash.settings import Settings
from sparkdash.supervisor import Supervisor, Tools
from sparkdash.supervisor.decide.judge import Thresholds
from sparkdash.units import GIB
from sparkdash.upstream import Upstream

HERE = Path(__file__).parent
FASTER = 10
ALIVE_S = 20.0
"""Longest that /health may take here: whoever waits for a podman that hangs waits for ten minutes."""
HUNG_S = 0.5
"""When a call that hangs is given up; the others have all the time that the daemon gives them, however busy the machine."""


class FastClock:
    """Real time, ten times faster: waits are short, and nothing else is pretended."""

    now = staticmethod(time.time)

    def monotonic(self) -> float:
        return time.monotonic() * FASTER

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / FASTER)


class RoomyBox:
    """A box of 128 GiB, where each container that is there holds what its profile declares."""

    def __init__(self, folder: Path, *profiles: Profile) -> None:
        self._folder = folder
        self._needs = {container_name(p.name): p.memory.total_bytes or 0 for p in profiles}

    def memory(self) -> Memory:
        held = sum(self._needs[each.name] for each in self._folder.glob("c/*") if not (each / "exit").exists())
        return Memory(total=128 * GIB, available=120 * GIB - held, free=120 * GIB - held)

    def contiguity(self) -> None:
        """Nothing is known of its free blocks."""

    async def gpu(self) -> GpuReading:
        return GpuReading(gpu=None)

    def engine_bytes(self, pids: set[int], reading: GpuReading) -> int | None:
        return None

    async def others_bytes(self, pids: set[int], reading: GpuReading) -> int:
        return 0

    def close(self) -> None:
        """Nothing to release."""


@dataclass
class Box:
    """One daemon's insides on the failing podman."""

    folder: Path
    owner: str
    bus: Bus
    client: httpx.AsyncClient
    supervisor: Any

    def fault(self, verb: str, how: str) -> None:
        """From now on this verb of podman misbehaves; `missing` takes the whole program away."""
        if how == "missing":
            (self.folder / "bin/podman").rename(self.folder / "bin/gone")
            return
        (self.folder / "fault").write_text(how)
        (self.folder / "fault").rename(self.folder / f"fault.{verb}")  # whole, as a call may be under way

    def fix(self) -> None:
        for file in self.folder.glob("fault.*"):
            file.unlink()
        if (self.folder / "bin/gone").exists():
            (self.folder / "bin/gone").rename(self.folder / "bin/podman")

    async def chat(self, model: str) -> tuple[int, dict[str, Any]]:
        """Status and error of a chat; the error is empty when it was answered."""
        body = {"model": model, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4, "stream": True}
        answer = await self.client.post("/v1/chat/completions", json=body)
        return answer.status_code, answer.json()["error"] if answer.status_code >= 400 else {}

    def running(self) -> list[str]:
        """Profiles that serve, as anyone sees it."""
        return sorted(name for name, engine in self.bus.snapshot.engines.items() if engine.state == "ready")

    def states(self) -> dict[str, str]:
        return {name: str(engine.state) for name, engine in self.bus.snapshot.engines.items()}

    def notices(self) -> list[str]:
        return [notice.code for notice in reversed(self.bus.snapshot.notices)]

    def calls(self) -> list[str]:
        return (self.folder / "calls").read_text().splitlines()

    def left(self) -> set[str]:
        """Containers, and engines whose processes live, container or not."""
        here = {folder.name for folder in self.folder.glob("c/*")}
        return here | {mark.partition("/")[2] for mark in leftovers.processes_of_owner(self.owner)}

    async def use(self, name: str) -> None:
        await self.supervisor.use(name, cause=SwapCause.USER)
        await self.supervisor.settled()

    async def until(self, holds: Callable[[], object]) -> None:
        await until(self.bus, lambda _: holds())


LARGE = MemoryNeed(weights_gib=70, kv_gib=0, overhead_gib=0, source="test")
"""Two of these do not fit beside one another."""


def profile(word: str, *, image: str = "image", memory: MemoryNeed = LARGE, mounts: tuple[Mount, ...] = ()) -> Profile:
    """A vLLM profile whose program is the tiny engine; the word is its name, and behind a space the animal."""
    name, _, animal = word.partition(" ")
    return Profile(
        name=name, engine=EngineKind.VLLM, image=image, gpu=False, models={"target": ModelRef(hf="org/model")},
        memory=memory, mounts=mounts, command=(os.path.realpath(sys.executable), "-SEs", str(HERE / "engine.py")),
        env={"FAKE_ENGINE": animal, "WHO": name},
    )  # fmt: skip


@pytest.fixture
def podman_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin/podman"
    program.write_text(f"#!/bin/sh\nPYTHON={sys.executable} HERE={HERE}\n{(HERE / 'podman.sh').read_text()}")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("FAKE_PODMAN", str(tmp_path))

    async def call(argv: list[str], *, deadline_s: float | None, **more: Any) -> command.CommandResult:
        verb = next(word for word in argv[1:] if not word.startswith("-"))
        fault = tmp_path / f"fault.{verb}"
        hangs = deadline_s is not None and fault.exists() and fault.read_text() == "hang"
        return await run(argv, deadline_s=HUNG_S if hangs else deadline_s, **more)

    run = command.run_command
    monkeypatch.setattr(command, "run_command", call)
    return tmp_path


@asynccontextmanager
async def opened(
    folder: Path,
    owner: str,
    ports: tuple[int, int],
    *profiles: Profile,
    reader: HostReader | None = None,
    no_progress_s: float = 600,
    thresholds: Thresholds | None = None,
) -> AsyncIterator[Box]:
    """A supervisor that has adopted, behind a gateway on a real port, and somebody who asks for its health."""
    info = DaemonInfo(version="0", host="h", pid=1, started_at=0, runtime="podman", url="http://x/v1")
    bus = Bus(Snapshot(seq=0, at=0, daemon=info), time.time)
    settings = Settings(
        shipped_profiles=False, drain_s=5, stop_grace_s=1, reclaim_s=5, no_progress_s=no_progress_s, hold_headers_s=60,
        engine_ports=ports, cache_dir=folder / "cache", hf_home=folder / "hf",
    )  # fmt: skip
    catalog = Catalog(profiles={p.name: p for p in profiles}, problems=())

    async def nothing(*_: object) -> None: ...

    reader = reader or RoomyBox(folder, *profiles)
    async with Upstream() as upstream:
        supervisor = Supervisor(Tools(
            catalog=catalog, runtime=Podman(), upstream=upstream, reader=reader, publish=bus.publish,
            settings=settings, owner=owner, clock=FastClock(), figures=lambda _: None, nodes=OneNode(reader), thresholds=thresholds or Thresholds(),
        ))  # fmt: skip
        deps = Deps(
            supervisor=supervisor, bus=bus, upstream=upstream, catalog=lambda: catalog, settings=settings,
            body_budget=BodyBudget(settings.bodies_limit_mib), reload=nothing, shutdown=nothing,
            settings_list=nothing, change_setting=nothing,  # type: ignore[arg-type]  # no test asks
        )  # fmt: skip
        server, sock = listen.Server(Gateway(deps).serve), listen.bind_tcp("127.0.0.1", 0)
        port = sock.getsockname()[1]
        serving = asyncio.create_task(server.serve(sockets=[sock]))
        running = asyncio.create_task(supervisor.run())
        pulse = Pulse(port)
        pulse.start()
        here = f"http://127.0.0.1:{port}"
        try:
            async with httpx.AsyncClient(base_url=here, timeout=60, verify=False) as client:
                await supervisor.adopted()
                yield Box(folder, owner, bus, client, supervisor)
            assert pulse.longest < ALIVE_S
        finally:
            await asyncio.to_thread(pulse.end)
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running
            await deserted(server)
            server.stop()
            await serving


Open = Callable[..., AbstractAsyncContextManager[Box]]


@pytest.fixture
async def open_box(podman_folder: Path, ports: tuple[int, int]) -> AsyncIterator[Open]:
    """`async with open_box("a", "b out-of-memory") as box`, names with their animals; a second one is the next daemon."""
    owner = uuid4().hex[:12]

    def open_one(*words: str, memory: MemoryNeed = LARGE, **more: Any) -> AbstractAsyncContextManager[Box]:
        return opened(podman_folder, owner, ports, *(profile(word, memory=memory) for word in words), **more)

    yield open_one
    await ending.end_processes(
        leftovers.processes_except(leftovers.processes_of_owner(owner), ())
    )  # engines outlive their daemon, and not their test


@pytest.fixture
def open_real_box(tmp_path: Path, ports: tuple[int, int], hostfs: Any) -> Open:
    """As `open_box`, on the real podman and the real memory: the tiny engine in a container, whose need is not told."""
    (tmp_path / "calls").touch()
    mounts = tuple(Mount(**mount) for mount in hostfs.mounts(HERE))
    made = partial(profile, image=hostfs.image, mounts=mounts, memory=MemoryNeed())

    def open_one(*words: str) -> AbstractAsyncContextManager[Box]:
        return opened(tmp_path, uuid4().hex[:12], ports, *map(made, words), reader=BoxReader())

    return open_one
