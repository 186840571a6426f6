"""The translator's life, with a small stand-in for its process: it speaks HTTP and knows no litellm."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from sparkdash.domain.event import Fact, Notice
from sparkdash.domain.profile import EngineKind, Profile
from sparkdash.errors import HostError, UpstreamError
from sparkdash.gateway import child_process as room
from sparkdash.gateway.protocol.route import find_route
from sparkdash.gateway.translate.translator import Translator, needs_translation

STAND_IN = """
import os, socket, sys, threading
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
sock = socket.socket(fileno=int(sys.argv[2]))
sock.setblocking(True)
print("ready", flush=True)
while True:
    pair, _ = sock.accept()
    head = pair.recv(65536)
    if b"/die" in head:
        os._exit(3)
    body = repr(dict.fromkeys(sorted(os.environ))).encode()
    pair.sendall(b"HTTP/1.1 200 X\\r\\nContent-Length: %d\\r\\nConnection: close\\r\\n\\r\\n%b" % (len(body), body))
    pair.close()
"""

CHATTY = """
import sys
from sparkdash.gateway.child_process import send_answer, serve_child

async def app(scope, receive, send):
    for stream in (sys.stdout, sys.stderr):
        print("x" * 300_000, file=stream)
        print("y\\n" * 300_000, file=stream, flush=True)
    await send_answer(send, 200, b'{"done": 1}')

serve_child(app, "chatty")
"""

Make = Callable[..., Translator]


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Make]:
    made: list[Translator] = []

    def build(code: str = STAND_IN, idle_s: float = 60.0, told: list[Fact] | None = None) -> Translator:
        made.append(
            Translator(tmp_path, idle_s, [].append if told is None else told.append, (sys.executable, "-c", code))
        )
        return made[-1]

    yield build
    for one in made:
        await one.__aexit__()


async def ask(translator: Translator, path: str = "/") -> bytes:
    async with translator.open(path, [], b"{}") as answer:
        return await answer.read()


async def gone(pid: int) -> None:
    """Until the process has ended; its exit code is its parent's to take."""
    with suppress(ProcessLookupError):
        handle = os.pidfd_open(pid)
        await asyncio.to_thread(select.select, [handle], [], [])
        os.close(handle)


async def test_it_is_started_by_the_first_request_and_serves_the_next(make: Make) -> None:
    """And says once what it takes."""
    told: list[Fact] = []
    translator = make(told=told)
    assert translator.pid is None
    await asyncio.gather(ask(translator), ask(translator))
    first = translator.pid
    await ask(translator)
    assert translator.pid == first
    assert [notice.code for notice in told if isinstance(notice, Notice)] == ["translator_started"]


async def test_no_secret_of_the_daemon_reaches_it(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """litellm would send OPENAI_API_KEY to whichever engine it asks."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy")
    translator = make()
    seen = (await ask(translator)).decode()
    assert "PATH" in seen
    assert "KEY" not in seen
    assert "PROXY" not in seen
    assert "secret" not in " ".join(psutil.Process(translator.pid).cmdline())


async def test_it_ends_when_nobody_has_used_it(make: Make) -> None:
    translator = make(idle_s=0.05)
    async with translator.open("/", [], b"") as answer:
        pid = translator.pid
        assert pid is not None
        await answer.read()
    await gone(pid)
    assert translator.pid is None


@pytest.mark.parametrize("how", ["killed between two requests", "dies of a request"])
async def test_the_next_request_starts_another_when_it_died(
    make: Make, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """The one that finds it dead has the reason and may be sent again."""
    monkeypatch.setattr(room, "REAP_S", 60.0)
    translator = make()
    await ask(translator)
    first = translator.pid
    assert first is not None
    if how == "dies of a request":
        with pytest.raises(UpstreamError) as caught:
            await ask(translator, "/die")
        assert caught.value.code == "translator_died"
    else:
        os.kill(first, signal.SIGKILL)
        await gone(first)
        with suppress(UpstreamError):  # if its end was not seen yet
            await ask(translator)
    await ask(translator)
    assert translator.pid not in (None, first)


async def test_one_that_talks_is_not_held_up(make: Make) -> None:
    """On either output, in lines of any length: more than the pipes and their readers hold together."""
    translator = make(CHATTY)
    async with asyncio.timeout(60):
        assert await ask(translator) == b'{"done": 1}'


async def test_one_that_does_not_start_says_its_last_words(make: Make) -> None:
    with pytest.raises(HostError) as caught:
        await ask(make("raise SystemExit('no module named tiktoken')"))
    assert caught.value.code == "translator_failed"
    assert "no module named tiktoken" in caught.value.message


async def test_one_that_never_is_ready_is_given_up(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "READY_S", 0.3)
    with pytest.raises(HostError, match="not ready within"):
        await ask(make("import sys; sys.stdin.read()"))


async def test_without_litellm_the_error_says_what_to_install(
    engine: Any, settings: Any, tools: Any, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the protocol's own shape, and with words on which no client posts again."""
    monkeypatch.setattr(room.importlib.util, "find_spec", lambda _name: None)
    async with tools.living_house(engine, settings, make()) as house:
        house.catalog.profiles["alpha"] = house.catalog.profiles["alpha"].model_copy(update={"protocols": ("chat",)})
        answer = await house.client.post("/v1/messages", json={"model": "alpha", "max_tokens": 1, "messages": []})
    assert answer.status_code == 501
    told = answer.json()
    assert (told["type"], told["error"]["code"]) == ("error", "translator_missing")
    assert "pip install 'sparkdash[translate]'" in told["error"]["message"]
    assert answer.headers["x-should-retry"] == "false"
    assert engine.seen == []


async def test_it_starts_while_the_engine_still_loads(engine: Any, settings: Any, tools: Any, make: Make) -> None:
    """Whoever waits for the one does not wait for the other after it."""
    told: asyncio.Queue[Fact] = asyncio.Queue()
    translator = make(told=SimpleNamespace(append=told.put_nowait))
    async with tools.living_house(engine, settings, translator) as house:
        house.catalog.profiles["alpha"] = house.catalog.profiles["alpha"].model_copy(update={"protocols": ("chat",)})
        house.supervisor.gate.clear()
        body = {"model": "alpha", "max_tokens": 1, "messages": []}
        asked = asyncio.create_task(house.client.post("/v1/messages", json=body))
        await told.get()
        pid = translator.pid
        house.supervisor.gate.set()
        assert (await asked).status_code == 200
        assert translator.pid == pid


@pytest.mark.parametrize(
    ("kind", "version", "given", "path", "expected"),
    [
        ("vllm", "0.11.0", None, "/v1/messages", True),
        ("vllm", "0.11.1", None, "/v1/messages", False),
        ("vllm", None, None, "/v1/messages", None),
        ("vllm", "0.9.2", None, "/v1/responses", True),
        ("vllm", "0.9.2", None, "/v1/chat/completions", False),
        ("vllm", "0.9.2", None, "/v1/completions", False),
        ("sglang", "0.5.8", None, "/v1/messages", True),
        ("trtllm", "1.2.0", None, "/v1/messages", True),
        ("trtllm", "1.2.0", ("chat", "messages"), "/v1/messages", False),
        ("openai", None, None, "/v1/responses", None),
        ("openai", None, ("chat",), "/v1/responses", True),
    ],
)
def test_what_an_engine_is_known_to_lack(
    kind: str, version: str | None, given: Any, path: str, expected: bool | None
) -> None:
    profile = Profile(name="p", engine=EngineKind(kind), protocols=given)
    route = find_route(path)
    assert route is not None
    assert needs_translation(profile, version, route) is expected


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        ({"kind": "ollama"}, None),
        ({"kind": "tabbyapi"}, True),
        ({"kind": "ollama", "routes": ["chat"]}, True),
        ({"port": 1, "routes": ["chat", "messages"]}, False),
    ],
)
def test_a_known_server_of_an_older_version_is_asked_before_a_message_is_translated(
    server: dict[str, Any], expected: bool | None
) -> None:
    """The description is of one version: Ollama has this route since 0.14. What the owner writes counts as it is."""
    profile = Profile.model_validate({"name": "p", "engine": "generic", "server": server})
    route = find_route("/v1/messages")
    assert route is not None
    assert needs_translation(profile, None, route) is expected
