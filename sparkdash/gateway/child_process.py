"""Child processes for libraries that the daemon must not load: the daemon's side, and the child's own server."""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import os
import socket
import sys
from abc import ABC, abstractmethod
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, MutableMapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar, Self

import psutil

from sparkdash import listen
from sparkdash.errors import BadAnswerError, EngineDeadError, HostError, UpstreamError
from sparkdash.host import command
from sparkdash.log import LOG
from sparkdash.paths import install_command
from sparkdash.upstream import EngineResponse, Upstream, encode_headers

READY = b"ready\n"
"""Line on standard output that says that the server answers."""
JSON = (b"content-type", b"application/json")

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]


def serve_child(app: App, program: str) -> None:
    """Serve `app` until standard input ends; `program` is how the process was started, for its usage."""
    parser = argparse.ArgumentParser(prog=program)
    parser.add_argument("--fd", type=int, required=True, help="a listening socket")
    LOG.least = "nothing"  # the gateway sees a broken stream by its end
    asyncio.run(_serve(app, parser.parse_args().fd))
    os._exit(0)  # an orderly exit of large libraries takes a second, and the daemon waits for it


async def read_body(receive: Receive) -> bytes:
    parts, more = [], True
    while more:
        message = await receive()
        parts.append(message.get("body", b""))
        more = message.get("more_body", False)
    return b"".join(parts)


async def send_answer(send: Send, status: int, body: bytes, *headers: tuple[bytes, bytes]) -> None:
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})


async def _serve(app: App, fd: int) -> None:
    server = listen.Server(app)
    loop = asyncio.get_running_loop()

    def released() -> None:
        if not os.read(0, 1024):
            loop.remove_reader(0)
            server.stop()

    loop.add_reader(0, released)
    loop.call_soon(_say_ready)
    await server.serve(sockets=[socket.socket(fileno=fd)])


def _say_ready() -> None:
    """The socket listens since it was made: what came meanwhile is waiting in it."""
    sys.stdout.buffer.write(READY)
    sys.stdout.buffer.flush()
    os.dup2(2, 1)  # the pipe is not read any more: a library that prints would fill it and block


READY_S = 60.0
"""Limit of a start: its disk may be busy with weights."""
LAST_LINES = 20
REAP_S = 0.5
_HANDED_ON = ("HOME", "LANG", "LC_ALL", "PATH", "PYTHONPATH", "SSL_CERT_DIR", "SSL_CERT_FILE", "TMPDIR", "VIRTUAL_ENV")
"""Variables that the child inherits: no keys, which a library might send on, and no proxies, which see local calls."""


class ChildProcess(ABC):
    """A child of the daemon, started on first use; an async context manager."""

    name: ClassVar[str]
    """Name in messages and in the socket's path; errors have the codes NAME_failed and NAME_died."""
    packages: ClassVar[tuple[str, ...]]
    """Optional packages that the child loads."""

    def __init__(self, folder: Path, idle_s: float, argv: Sequence[str]) -> None:
        self._argv = tuple(argv)
        self._path = folder / f"{self.name}.sock"
        self._idle_s = idle_s
        self._running: _Running | None = None
        self._starting = asyncio.Lock()
        self._users = 0
        self._idle: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.shut_down()
        while self._tasks:
            await asyncio.wait(self._tasks)

    @property
    def installed(self) -> bool:
        """Whether the child's packages are installed; looks for them without loading them."""
        return all(importlib.util.find_spec(name) is not None for name in self.packages)

    @property
    def pid(self) -> int | None:
        """Process id; None while the child does not run."""
        return self._running.process.pid if self._running and self._running.lives else None

    @abstractmethod
    def not_installed_error(self) -> HostError: ...

    def broke_off_error(self) -> UpstreamError:
        return UpstreamError(f"The {self.name} broke off in the middle of an answer.", code=f"{self.name}_broke_off")

    @asynccontextmanager
    async def open(self, path: str, headers: list[tuple[bytes, bytes]], body: bytes) -> AsyncIterator[EngineResponse]:
        """Post one request, as `Upstream.open` does.

        Raises:
            HostError: `not_installed_error`, or code NAME_failed: the child does not start.
            UpstreamError: code NAME_died: the child ended before its answer did, and the next request starts another;
            or `broke_off_error`: its answer ended too soon.
        """
        with self._in_use():
            running = await self._started()
            question = running.upstream.open("POST", f"http://{self.name}{path}", encode_headers(headers), body)
            del body  # frees the memory while the answer comes
            try:
                async with question as answer:
                    yield answer
            except (EngineDeadError, BadAnswerError):
                raise  # an engine's fault, passed on by the child
            except UpstreamError:
                raise await self._why(running) from None

    @contextmanager
    def _in_use(self) -> Iterator[None]:
        self._users += 1
        if self._idle:
            self._idle.cancel()
        try:
            yield
        finally:
            self._users -= 1
            if not self._users:
                self._idle = asyncio.get_running_loop().call_later(self._idle_s, self.shut_down)

    def shut_down(self, grace_s: float = listen.GRACE_S + 2) -> None:
        """End the child; kill it after `grace_s`. Its current users get the error NAME_died."""
        if self._idle:
            self._idle.cancel()
        if running := self._running:
            self._running = None
            task = asyncio.ensure_future(running.end(grace_s))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _started(self) -> _Running:
        async with self._starting:
            if self._running and not self._running.lives:
                self.shut_down()
            if self._running is None:
                self._running = await self._start()
            return self._running

    async def _start(self) -> _Running:
        if not self.installed:
            raise self.not_installed_error()
        running = await _Running.begun(self.name, self._argv, self._path)
        LOG.info(f"the {self.name} runs", pid=running.process.pid, rss=running.rss)
        return running

    async def _why(self, running: _Running) -> UpstreamError:
        """Build the error of a connection that ended too soon."""
        if await running.ended_within(REAP_S):
            words = f"The {self.name} ended in the middle of an answer (code {running.process.returncode})."
            return UpstreamError(words, code=f"{self.name}_died", hint="The next request starts it again.")
        return self.broke_off_error()


class _Running:
    """A running child and its connection."""

    def __init__(self, name: str, process: Process, upstream: Upstream) -> None:
        self._name = name
        self.process = process
        self.upstream = upstream
        self.rss: int | None = None
        """Resident memory in bytes, once the child is ready."""
        self._last: deque[bytes] = deque(maxlen=LAST_LINES)
        self._listens = asyncio.ensure_future(self._listen())

    @classmethod
    async def begun(cls, name: str, argv: Sequence[str], path: Path) -> _Running:
        """Start the child and wait until it is ready. Raises HostError: code NAME_failed, with its last line."""
        with listen.bind_unix(path) as sock:
            fd = sock.fileno()
            process = await command.begin_child(
                (*argv, "--fd", str(fd)),
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                pass_fds=(fd,),
                env={name: os.environ[name] for name in _HANDED_ON if name in os.environ} | {"PYTHONUNBUFFERED": "1"},
            )
        running = cls(name, process, await Upstream(str(path)).__aenter__())
        try:
            async with asyncio.timeout(READY_S):
                await running._until_ready()
        except TimeoutError:
            await running.end()
            raise running._failed(f"it was not ready within {READY_S:g} s") from None
        except BaseException:
            await running.end()
            raise
        return running

    @property
    def lives(self) -> bool:
        return self.process.returncode is None

    async def _until_ready(self) -> None:
        assert self.process.stdout  # noqa: S101 - a pipe was asked for
        if await self.process.stdout.readline() != READY:
            await self.process.wait()
            await self._listens  # read its last line
            raise self._failed(f"it ended with code {self.process.returncode}")
        with suppress(psutil.Error):
            self.rss = psutil.Process(self.process.pid).memory_info().rss

    async def _listen(self) -> None:
        """Keep the last lines of standard error. Never stops: a full pipe would block the child."""
        assert self.process.stderr  # noqa: S101 - a pipe was asked for
        while True:
            try:
                line = await self.process.stderr.readline()
            except ValueError:  # longer than asyncio's limit; the rest comes as a line
                continue
            if not line:
                return
            self._last.append(line)

    def _failed(self, how: str) -> HostError:
        words = self._last[-1].decode("utf-8", "replace").strip() if self._last else "without a word"
        return HostError(
            f"The {self._name} did not start: {how} ({words}).",
            code=f"{self._name}_failed",
            hint=f"`{install_command('translate')}` repairs a broken installation.",
        )

    async def ended_within(self, limit_s: float) -> bool:
        """Wait for the child's end, which is seen a moment after its sockets are closed; return whether it came."""
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self.process.wait()
        return not self.lives

    async def end(self, grace_s: float = listen.GRACE_S + 2) -> None:
        """End the child by closing its standard input; kill it after `grace_s`."""
        try:
            await self.upstream.__aexit__()
            if self.process.stdin:
                self.process.stdin.close()
            if await self.ended_within(grace_s):
                await self._listens  # read its last line
        finally:
            await command.end_child(self.process)
        await self._listens  # ends after a kill, too: the pipes are closed
