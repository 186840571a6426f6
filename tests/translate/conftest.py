"""A whole daemon in this process, before engines that are not its own: simulated ones, and scripted ones on a socket."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import pytest_asyncio
from scripted import Script, Seen, Wire, answering, dying, engine_on_a_socket
from serving import until
from simulated import serving

from sparkdash import daemon, upstream
from sparkdash.catalog import Catalog
from sparkdash.domain.profile import EngineKind, Profile, SimSpec, SimSpeed
from sparkdash.domain.request import Request
from sparkdash.host.box import BoxReader
from sparkdash.host.processes.process import Process
from sparkdash.settings import Settings
from sparkdash.supervisor import probe

KEY = "sk-far-0123456789abcdef"
FAST = (SimSpeed(context=0, decode_tok_s=2000, prefill_tok_s=200_000),)


@dataclass
class Engine:
    """An engine that speaks chat completions alone, as `script` says; it keeps what it was asked."""

    script: Script = dying
    asked: list[dict[str, Any]] = field(default_factory=list)
    heads: list[str] = field(default_factory=list)

    def answers(self, status: int, body: dict[str, Any]) -> None:
        """Answer each chat so from now on."""
        self.script = answering(json.dumps(body).encode(), status)

    async def __call__(self, seen: Seen, wire: Wire) -> None:
        if seen.method == "GET":
            await wire.answer(b'{"object": "list", "data": []}')
        elif not seen.target.startswith("/v1/chat/completions"):
            await wire.answer(b'{"detail": "Not Found"}', 404)
        else:
            self.asked.append(json.loads(seen.body))
            self.heads.append("\n".join(f"{name}: {value}" for name, value in seen.headers.items()))
            await self.script(seen, wire)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def box(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Any]:
    """`.house` of the daemon, `.client` to its gateway, `.newest()` row, `.engine` (scripted), `.url`, `.key`; one for a module."""
    root = tmp_path_factory.mktemp("box")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("CONFIG", "STATE", "RUNTIME"):
            (root / name.lower()).mkdir()
            patch.setenv(f"SPARKDASH_{name}_DIR", str(root / name.lower()))
        patch.setenv("TEST_FAR_KEY", KEY)
        for module, limit in ((probe, "PROBE_S"), (upstream.client, "CONNECT_S")):
            patch.setattr(module, limit, 60)  # a busy machine is no engine that is away
        async with AsyncExitStack() as stack:
            yield await _built(root, stack)


async def _built(root: Path, stack: AsyncExitStack) -> Any:
    engine = Engine()
    url = (await stack.enter_async_context(engine_on_a_socket(engine))).url
    sim = Profile(name="m", engine=EngineKind.SIM, sim=SimSpec(fault="only-chat", reasoning_tokens=4, speeds=FAST))
    _, sim_url = await stack.enter_async_context(serving(sim))
    far = Profile(name="far", engine=EngineKind.REMOTE, url=f"{url}/v1", model_id="org/model", key_env="TEST_FAR_KEY")
    profiles = [
        Profile(name="scripted", engine=EngineKind.OPENAI, url=url, protocols=("chat",), request={"min_p": 0.5}),
        Profile(name="m", engine=EngineKind.OPENAI, url=sim_url),
        far,
        far.model_copy(update={"name": "far/safe", "fallbacks": ("far/unset", "nobody", "m")}),
        far.model_copy(update={"name": "far/unset", "key_env": "TEST_NO_KEY"}),
        far.model_copy(update={"name": "far/nowhere", "url": "http://127.0.0.1:1/v1", "fallbacks": ("m",)}),
        far.model_copy(update={"name": "far/vain", "url": "http://127.0.0.1:1/v1", "fallbacks": ("far/unset",)}),
        Profile(name="down", engine=EngineKind.OPENAI, url="http://127.0.0.1:1", fallbacks=("far/safe", "far")),
    ]
    parts = daemon.Parts(
        settings=(given := Settings(port=0)),
        load_settings=lambda: given,
        runtime=Process(root / "processes"),
        reader=BoxReader(),
        load_catalog=lambda: Catalog({profile.name: profile for profile in profiles}),
    )
    ready: asyncio.Future[daemon.Daemon] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(daemon.serve(parts, ready=ready.set_result))
    await asyncio.wait({task, ready}, return_when=asyncio.FIRST_COMPLETED)
    house = ready.result() if ready.done() else await task  # which raises why not

    async def stop() -> None:
        house.server.stop()
        await task

    stack.push_async_callback(stop)
    ended: list[str] = []

    async def note(_request: httpx.Request) -> None:
        ended[:] = [row.id for row in house.bus.snapshot.recent]

    async def newest() -> Request:
        """The row of what `.client` asked last, once it is over; an answer is whole a moment before."""
        return (await until(house.bus, lambda now: not now.requests and {r.id for r in now.recent} - {*ended})).recent[
            0
        ]

    hooks = {"request": [note]}
    client = await stack.enter_async_context(httpx.AsyncClient(base_url=house.url, timeout=60, event_hooks=hooks))
    return SimpleNamespace(house=house, client=client, newest=newest, engine=engine, url=house.url, key=KEY)
