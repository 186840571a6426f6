"""A child process's life, with a small stand-in for its program, which speaks HTTP."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from logs import capture_logs

from sparkdash.errors import HostError, UpstreamError
from sparkdash.gateway import child_process as room

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


class Child(room.ChildProcess):
    """A child of no other kind."""

    name = "child"
    packages = ()

    def not_installed_error(self) -> HostError:
        return HostError("the child is not installed", code="child_missing")


Make = Callable[..., Child]


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Make]:
    made: list[Child] = []

    def build(code: str = STAND_IN, idle_s: float = 60.0) -> Child:
        made.append(Child(tmp_path, idle_s, (sys.executable, "-c", code)))
        return made[-1]

    yield build
    for one in made:
        await one.__aexit__()


async def ask(child: Child, path: str = "/") -> bytes:
    async with child.open(path, [], b"{}") as answer:
        return await answer.read()


async def gone(pid: int) -> None:
    """Until the process has ended; its exit code is its parent's to take."""
    with suppress(ProcessLookupError):
        handle = os.pidfd_open(pid)
        await asyncio.to_thread(select.select, [handle], [], [])
        os.close(handle)


async def test_it_is_started_by_the_first_request_and_serves_the_next(make: Make) -> None:
    """And says once what it takes."""
    child = make()
    assert child.pid is None
    with capture_logs() as lines:
        await asyncio.gather(ask(child), ask(child))
        first = child.pid
        await ask(child)
    assert child.pid == first
    (told,) = (line for line in lines if line["event"] == "the child runs")
    assert told["rss"] > 0


async def test_no_secret_of_the_daemon_reaches_it(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy")
    child = make()
    seen = (await ask(child)).decode()
    assert "PATH" in seen
    assert "KEY" not in seen
    assert "PROXY" not in seen
    assert "secret" not in " ".join(psutil.Process(child.pid).cmdline())


async def test_it_ends_when_nobody_has_used_it(make: Make) -> None:
    child = make(idle_s=0.05)
    async with child.open("/", [], b"") as answer:
        pid = child.pid
        assert pid is not None
        await answer.read()
    await gone(pid)
    assert child.pid is None


@pytest.mark.parametrize("how", ["killed between two requests", "dies of a request"])
async def test_the_next_request_starts_another_when_it_died(
    make: Make, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """The one that finds it dead has the reason and may be sent again."""
    monkeypatch.setattr(room, "REAP_S", 60.0)
    child = make()
    await ask(child)
    first = child.pid
    assert first is not None
    if how == "dies of a request":
        with pytest.raises(UpstreamError) as caught:
            await ask(child, "/die")
        assert caught.value.code == "child_died"
    else:
        os.kill(first, signal.SIGKILL)
        await gone(first)
        with suppress(UpstreamError):  # if its end was not seen yet
            await ask(child)
    await ask(child)
    assert child.pid not in (None, first)


async def test_one_that_talks_is_not_held_up(make: Make) -> None:
    """On either output, in lines of any length: more than the pipes and their readers hold together."""
    child = make(CHATTY)
    async with asyncio.timeout(60):
        assert await ask(child) == b'{"done": 1}'


async def test_one_that_does_not_start_says_its_last_words(make: Make) -> None:
    with pytest.raises(HostError) as caught:
        await ask(make("raise SystemExit('no module named tiktoken')"))
    assert caught.value.code == "child_failed"
    assert "no module named tiktoken" in caught.value.message


async def test_one_that_never_is_ready_is_given_up(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "READY_S", 0.3)
    with pytest.raises(HostError, match="not ready within"):
        await ask(make("import sys; sys.stdin.read()"))
