"""The demo: its traffic (who asks, and what), and its rehearsal of shipped profiles."""

import asyncio
import json
import re
import signal
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from programs import Program
from simulated import serving

from sparkdash.catalog import load_catalog
from sparkdash.domain.profile import EngineKind, MemoryNeed, Profile, Published, SimSpec
from sparkdash.engines import registry
from sparkdash.paths import shipped_profiles
from sparkdash.sim.http_server import HttpRequest, HttpResponse, serve_http
from sparkdash.sim.prose import seeded_random
from sparkdash.sim.traffic import HABITS, ClientHabit, Conversation, Traffic, acceptance, simulated_twin, speeds
from tests.sim.conftest import poll, profile_of

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


async def test_refusals_are_met_with_patience(gateway: tuple[Gateway, str]) -> None:
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
        await poll(lambda: bool(pauses))
    assert pauses[0] == 3


async def test_its_conversations_use_the_prefix_cache() -> None:
    async with serving(profile_of(time_scale=500, context=32768)) as (app, url):
        habit = ClientHabit("aider", system=800, ask=(5, 20), think=(0, 0), answer=(20, 40), turns=8)
        async with talking(Traffic(f"{url}/v1", habits=(habit,))):
            await poll(lambda: app.engine.counters.finished["length"] >= 6)
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


SHIPPED = load_catalog((shipped_profiles(),)).profiles


def row(workload: str, **figures: Any) -> Published:
    return Published(workload=workload, source="x.txt", **figures)


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_profile_has_a_twin(name: str) -> None:
    original, copy = SHIPPED[name], simulated_twin(SHIPPED[name], time_scale=3)
    adapter, sim = registry.adapter(original.engine), registry.adapter(EngineKind.SIM)
    for field in ("name", "serves", "modes", "published", "nodes", "cannot_run", "nearest"):
        assert getattr(copy, field) == getattr(original, field)
    assert (copy.engine, copy.image) == (EngineKind.SIM, None)
    assert "SIMULATED" in copy.about
    assert sim.speculation(copy) == adapter.speculation(original)
    assert sim.context(copy) == copy.context == (adapter.context(original) or 32768)
    assert copy.sim is not None
    assert copy.sim.time_scale == 3
    assert copy.published_start_s == copy.sim.load_s / 3, "no one is told the real box's minutes for seconds"
    assert copy.memory.total_bytes is not None
    assert copy.memory.total_bytes / 2**30 == pytest.approx(copy.sim.memory_gib, abs=0.1)
    assert Profile.model_validate_json(copy.model_dump_json()) == copy


def test_published_speeds_are_kept_by_context() -> None:
    points = speeds(
        (row("ctx 0, short", e2e_tok_s=39), row("ctx 0, long", e2e_tok_s=68), row("ctx 16K, long", e2e_tok_s=57)), 32768
    )
    assert [(point.context, point.decode_tok_s) for point in points] == [(0, 68), (16384, 57)]
    assert points[0].prefill_tok_s > points[1].prefill_tok_s


@pytest.mark.parametrize(
    ("speculation", "positions"),
    [(None, 0), ("eagle3 k=1", 1), ("mtp k=2", 2), ("dflash k=15", 15), ("novel k=3", 3), ("suffix", 1)],
)
def test_acceptance_has_a_chance_per_position(speculation: str | None, positions: int) -> None:
    chances = acceptance(speculation)
    assert len(chances) == positions
    assert list(chances) == sorted(chances, reverse=True)
    assert all(0 < chance < 1 for chance in chances)


def test_known_memory_is_kept_and_the_rest_guessed() -> None:
    memory = simulated_twin(
        Profile(name="some-70b", engine=EngineKind.VLLM, memory=MemoryNeed(kv_gib=12, source="card"))
    ).memory
    assert (memory.kv_gib, memory.weights_gib) == (12, 38.5)
    assert memory.source == "simulated; known terms from: card"


def test_a_profile_for_two_boxes_runs_where_two_are_simulated() -> None:
    original = Profile(name="some-235b", engine=EngineKind.VLLM, nodes=2, cannot_run="it needs two", nearest="x")
    assert simulated_twin(original).cannot_run == "it needs two"
    copy = simulated_twin(original, nodes=2)
    assert (copy.cannot_run, copy.nearest, copy.nodes) == (None, None, 2)
    assert copy.memory.weights_gib == pytest.approx(64.65, abs=0.1)


def test_a_simulated_profile_only_takes_the_time_scale() -> None:
    original = Profile(name="x", engine=EngineKind.SIM, sim=SimSpec(load_s=3, fault="slow"))
    assert simulated_twin(original, time_scale=9).sim == SimSpec(load_s=3, fault="slow", time_scale=9)
