"""The demo's traffic: who asks, and what it asks."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import httpx
import pytest
from programs import Program
from simulated import serving

from sparkdash.domain.profile import Profile
from sparkdash.sim.http_server import HttpRequest, HttpResponse, serve_http
from sparkdash.sim.prose import seeded_random
from sparkdash.sim.traffic import HABITS, ClientHabit, Conversation, Traffic

Eventually = Callable[[Callable[[], bool]], Awaitable[None]]
QUICK = ClientHabit("codex", system=50, ask=(5, 10), think=(0, 0), answer=(5, 10), turns=3)


class Gateway:
    """Notes every request and answers it as told."""

    def __init__(self) -> None:
        self.requests: asyncio.Queue[HttpRequest] = asyncio.Queue()
        self.status = 200

    async def handle(self, request: HttpRequest) -> HttpResponse:
        self.requests.put_nowait(request)
        return HttpResponse(b'data: {"choices":[{"delta":{"content":"Yes."}}]}\n\ndata: [DONE]\n\n', self.status)


@pytest.fixture
async def gateway() -> AsyncIterator[tuple[Gateway, str]]:
    fake = Gateway()
    sock = socket.create_server(("127.0.0.1", 0))
    site = await serve_http(fake.handle, sock)
    yield fake, f"http://127.0.0.1:{sock.getsockname()[1]}/v1"
    site.close()


@asynccontextmanager
async def talking(traffic: Traffic) -> AsyncIterator[None]:
    task = asyncio.create_task(traffic.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_pretend_clients_ask_auto_and_say_who_they_are(gateway: tuple[Gateway, str]) -> None:
    fake, url = gateway
    async with talking(Traffic(url)):
        first = [await fake.requests.get() for _ in HABITS]
    assert {r.headers["user-agent"] for r in first} == {f"sparkdash-demo/{habit.client}" for habit in HABITS}
    for request in first:
        body = json.loads(request.body)
        assert (request.path, body["model"], body["stream"]) == ("/v1/chat/completions", "auto", True)
        assert body["stream_options"] == {"include_usage": True}


async def test_refusals_are_met_with_patience(gateway: tuple[Gateway, str], eventually: Eventually) -> None:
    fake, url = gateway
    fake.status = 503
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        fake.status = 200
        await asyncio.sleep(0)

    async with talking(Traffic(url, habits=(QUICK,), sleep=pause)):
        first, second, third = [json.loads((await fake.requests.get()).body)["messages"] for _ in range(3)]
    assert pauses[0] == 3
    assert len(first) == len(second) == 2
    assert [m["role"] for m in third] == ["system", "user", "assistant", "user"]
    gone = Traffic("http://127.0.0.1:9/v1", habits=(QUICK,), sleep=pause)
    pauses.clear()
    async with talking(gone):
        await eventually(lambda: bool(pauses))
    assert pauses[0] == 3


async def test_its_conversations_use_the_prefix_cache(
    make_profile: Callable[..., Profile], eventually: Eventually
) -> None:
    async with serving(make_profile(time_scale=500, context=32768)) as (app, url):
        habit = ClientHabit("aider", system=800, ask=(5, 20), think=(0, 0), answer=(20, 40), turns=8)
        async with talking(Traffic(f"{url}/v1", habits=(habit,))):
            await eventually(lambda: app.engine.counters.finished["length"] >= 6)
        assert app.engine.counters.hits / app.engine.counters.queries > 0.6


def test_a_talk_begins_anew_after_its_turns() -> None:
    talk = Conversation(QUICK, seeded_random("x"))
    lengths = []
    for _ in range(5):
        talk.next()
        lengths.append(len(talk.messages))
        talk.answered("Yes.")
    assert lengths == [2, 4, 6, 2, 4]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_it_hangs_up_before_the_demo_refuses_anybody(number: signal.Signals) -> None:
    """Ctrl-C while the first engine loads and the pretend clients wait for it: none of them is a failed request in the log."""
    words = ["-m", "sparkdash", "demo", "--headless"]
    with Program(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        try:
            url = re.search(r"http://\S+(?=/v1)", (await asyncio.to_thread(child.stdout.readline)).decode())
            assert url is not None
            async with (
                httpx.AsyncClient(timeout=60, verify=False) as http,
                http.stream("GET", f"{url[0]}/api/events") as feed,
            ):
                waiting: set[str] = set()
                async for line in feed.aiter_lines():
                    waiting |= set(re.findall(r'"client":"(\S+?)".{,80}"state":"waiting"', line))
                    if len(waiting) == len(HABITS):
                        break
                child.send_signal(number)
            _, said = await asyncio.to_thread(child.communicate)
        finally:
            child.kill()
    assert child.returncode == 0
    assert b"serving" in said
    assert b"failed" not in said
