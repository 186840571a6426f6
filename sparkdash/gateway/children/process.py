"""Process: the daemon's side of a process beside it: started when first needed, kept while it is used, ended when it is not.

Owns: the one process, its socket, and the connection to it. Must not know requests, nor what it does.
Rule 1: nothing secret is on its command line or in its environment.
Rule 2: it lives no longer than the daemon, however that ends: its standard input is a pipe that closes with us.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
from abc import ABC, abstractmethod
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import ClassVar, Self

import psutil
import structlog

from sparkdash import listen
from sparkdash.errors import BadAnswerError, EngineDeadError, HostError, UpstreamError
from sparkdash.gateway.children.serve import READY
from sparkdash.host import command
from sparkdash.upstream import EngineResponse, Upstream, encode_headers

LOG = structlog.get_logger("sparkdash.beside")
READY_S = 60.0
"""How long a start may take: litellm needs 3 s of processor time, and the disk where it lies may be busy with weights."""
LAST_LINES = 20
REAP_S = 0.5
_HANDED_ON = ("HOME", "LANG", "LC_ALL", "PATH", "PYTHONPATH", "SSL_CERT_DIR", "SSL_CERT_FILE", "TMPDIR", "VIRTUAL_ENV")
"""Of our environment. No keys, which litellm would send to any engine; no proxies, which would be asked for our own box."""


class ChildProcess(ABC):
    """One for the daemon's life; an async context manager."""

    name: ClassVar[str]
    """What it is name, in words and in its socket's name; errors have the codes CALLED_failed and CALLED_died."""
    packages: ClassVar[tuple[str, ...]]
    """The packages that it loads and that not every installation has."""

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
        """Is all here that it loads? Only looked for, never loaded."""
        return all(importlib.util.find_spec(name) is not None for name in self.packages)

    @property
    def pid(self) -> int | None:
        """Its process; None while there is none."""
        return self._running.process.pid if self._running and self._running.lives else None

    @abstractmethod
    def not_installed_error(self) -> HostError:
        """The error for whoever needs it where it is not installed."""

    def on_started(self, rss: int | None) -> None:  # noqa: B027 - not every one has something to say
        """It was started; it has `rss` bytes of memory in use."""

    def broke_off_error(self) -> UpstreamError:
        """The error when it broke an answer off and lives."""
        return UpstreamError(f"The {self.name} broke off in the middle of an answer.", code=f"{self.name}_broke_off")

    @asynccontextmanager
    async def open(self, path: str, headers: list[tuple[bytes, bytes]], body: bytes) -> AsyncIterator[EngineResponse]:
        """Post one request, as `Upstream.open` does.

        Raises:
            HostError: what `missing` gives, or code CALLED_failed: there is none to ask.
            UpstreamError: code CALLED_died: it ended before its answer did, and the next request starts another; what `cut`
                gives: its answer ended too soon.
        """
        with self._in_use():
            running = await self._started()
            question = running.upstream.open("POST", f"http://{self.name}{path}", encode_headers(headers), body)
            del body  # sent, and no longer needed while the answer comes
            try:
                async with question as answer:
                    yield answer
            except (EngineDeadError, BadAnswerError):
                raise  # what it passed on from an engine is no fault of its own
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
        """End it, and kill it if it takes longer than that; who uses it just now is told that it died."""
        if self._idle:
            self._idle.cancel()
        if running := self._running:
            self._running = None
            self._keep(asyncio.ensure_future(running.end(grace_s)))

    def _keep(self, task: asyncio.Task[None]) -> None:
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
        self.on_started(running.rss)
        return running

    async def _why(self, running: _Running) -> UpstreamError:
        """What the client is told when the connection to it ends too soon."""
        if await running.ended_within(REAP_S):
            words = f"The {self.name} ended in the middle of an answer (code {running.process.returncode})."
            return UpstreamError(words, code=f"{self.name}_died", hint="The next request starts it again.")
        return self.broke_off_error()


class _Running:
    """One process and the way to it."""

    def __init__(self, name: str, process: Process, upstream: Upstream) -> None:
        self._name = name
        self.process = process
        self.upstream = upstream
        self.rss: int | None = None
        """Bytes of its memory that is in use, once it is ready."""
        self._last: deque[bytes] = deque(maxlen=LAST_LINES)
        self._listens = asyncio.ensure_future(self._listen())

    @classmethod
    async def begun(cls, name: str, argv: Sequence[str], path: Path) -> _Running:
        """Start it and wait until it answers. Raises HostError: code CALLED_failed, with its last words."""
        with listen.bind_unix(path) as sock:
            fd = sock.fileno()
            process = await command.begin_child(
                (*argv, "--fd", str(fd)),
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                pass_fds=(fd,),
                env=_environment(os.environ),
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
        """Has it not ended, as far as we know?"""
        return self.process.returncode is None

    async def _until_ready(self) -> None:
        assert self.process.stdout  # noqa: S101 - a pipe was asked for
        if await self.process.stdout.readline() != READY:
            await self.process.wait()
            await self._listens  # to its last word
            raise self._failed(f"it ended with code {self.process.returncode}")
        with suppress(psutil.Error):
            self.rss = psutil.Process(self.process.pid).memory_info().rss

    async def _listen(self) -> None:
        """Keep its last words, and never stop: what nobody reads fills the pipe, and then it stands still."""
        assert self.process.stderr  # noqa: S101 - a pipe was asked for
        while True:
            try:
                line = await self.process.stderr.readline()
            except ValueError:  # longer than asyncio keeps; its rest comes as a line
                continue
            if not line:
                return
            self._last.append(line)

    def _failed(self, how: str) -> HostError:
        words = self._last[-1].decode("utf-8", "replace").strip() if self._last else "without a word"
        return HostError(
            f"The {self._name} did not start: {how} ({words}).",
            code=f"{self._name}_failed",
            hint="`sparkdash doctor` looks at it; `pip install 'sparkdash[translate]'` mends a broken installation.",
        )

    async def ended_within(self, limit_s: float) -> bool:
        """Has it ended? One that is killed lets go of its sockets a moment before it is seen to end."""
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self.process.wait()
        return not self.lives

    async def end(self, grace_s: float = listen.GRACE_S + 2) -> None:
        """It is told by the end of its standard input, and killed if that is not enough."""
        try:
            await self.upstream.__aexit__()
            if self.process.stdin:
                self.process.stdin.close()
            if await self.ended_within(grace_s):
                await self._listens  # to its last word
        finally:
            await command.end_child(self.process)
        await self._listens  # of one that was killed, too: its pipes are closed


def _environment(ours: Mapping[str, str]) -> dict[str, str]:
    return {name: ours[name] for name in _HANDED_ON if name in ours} | {"PYTHONUNBUFFERED": "1"}
