"""The translator's life: started when first needed, kept while it is used, ended when it is not.

Owns: the one process, its socket, and the connection to it. Must not know requests, engines or litellm.
Rule 1: nothing secret is on its command line or in its environment: an engine's key comes with each request.
Rule 2: it lives no longer than the daemon, however that ends: its standard input is a pipe that closes with us.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Self

import psutil
import structlog

from sparkdash import listen
from sparkdash.domain.event import Fact, Level, Notice
from sparkdash.errors import HostError, UpstreamError
from sparkdash.gateway.translate.words import READY
from sparkdash.units import duration, gib
from sparkdash.upstream import Answer, Upstream

LOG = structlog.get_logger("sparkdash.translator")
SOCKET_NAME = "translator.sock"
READY_S = 60.0
"""How long a start may take: 3 s of processor time, and the disk where litellm lies may be busy with weights."""
LAST_LINES = 20
REAP_S = 0.5
_HANDED_ON = ("HOME", "LANG", "LC_ALL", "PATH", "PYTHONPATH", "SSL_CERT_DIR", "SSL_CERT_FILE", "TMPDIR", "VIRTUAL_ENV")
"""Of our environment. No keys, which litellm would send to any engine; no proxies, which would be asked for our own box."""


class Translator:
    """One for the daemon's life; an async context manager. `publish` is told when it starts and how big it is."""

    def __init__(
        self,
        folder: Path,
        idle_s: float,
        publish: Callable[[Fact], object],
        argv: Sequence[str] = (sys.executable, "-m", "sparkdash.gateway.translate"),
    ) -> None:
        self._argv = tuple(argv)
        self._path = folder / SOCKET_NAME
        self._idle_s = idle_s
        self._publish = publish
        self.learned: set[tuple[str, float | None, str]] = set()
        """Engines, each incarnation for itself, and paths that they answered with 404."""
        self._running: _Running | None = None
        self._starting = asyncio.Lock()
        self._users = 0
        self._idle: asyncio.TimerHandle | None = None
        self._early: asyncio.Task[None] | None = None
        """A start before its first request."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._early:
            self._early.cancel()
        self._let_go()
        while self._tasks:
            await asyncio.wait(self._tasks)

    @property
    def installed(self) -> bool:
        """Is litellm here? Only looked for, never loaded."""
        return importlib.util.find_spec("litellm") is not None

    @property
    def pid(self) -> int | None:
        """Its process; None while there is none."""
        return self._running.process.pid if self._running and self._running.lives else None

    def foresee(self) -> None:
        """Somebody waits for an engine and will need it: have it start meanwhile."""
        if self._running is None and not self._starting.locked() and self.installed:
            self._early = asyncio.ensure_future(self._foreseen())
            self._keep(self._early)

    async def _foreseen(self) -> None:
        with suppress(HostError), self._in_use():  # whoever needs it then is told why it does not start
            await self._started()

    @asynccontextmanager
    async def open(self, path: str, headers: list[tuple[bytes, bytes]], body: bytes) -> AsyncIterator[Answer]:
        """Post one request, as `Upstream.open` does.

        Raises:
            HostError: code `translator_missing` or `translator_failed`: there is none to ask.
            UpstreamError: code `translator_died`: it ended before its answer did, and the next request starts another; code
                `engine_died`: its answer ended too soon, since the engine's did.
        """
        with self._in_use():
            running = await self._started()
            question = running.upstream.open("POST", f"http://translator{path}", headers, body)
            del body  # sent, and no longer needed while the answer comes
            try:
                async with question as answer:
                    yield answer
            except UpstreamError:
                raise await running.why() from None

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
                self._idle = asyncio.get_running_loop().call_later(self._idle_s, self._let_go)

    def _let_go(self) -> None:
        if self._idle:
            self._idle.cancel()
        if running := self._running:
            self._running = None
            self._keep(asyncio.ensure_future(running.end()))

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _started(self) -> _Running:
        async with self._starting:
            if self._running and not self._running.lives:
                self._let_go()
            if self._running is None:
                self._running = await self._start()
            return self._running

    async def _start(self) -> _Running:
        if not self.installed:
            raise _missing()
        running = await _Running.begun(self._argv, self._path)
        size = f"It takes {gib(running.rss)} of the memory, until nobody has used it for {duration(self._idle_s)}."
        LOG.info("the translator runs", pid=running.process.pid, rss=running.rss)
        text = f"The translator runs, since an engine lacks a protocol that its client speaks. {size}"
        self._publish(Notice(level=Level.INFO, code="translator_started", text=text))
        return running


class _Running:
    """One process and the way to it."""

    def __init__(self, process: Process, upstream: Upstream) -> None:
        self.process = process
        self.upstream = upstream
        self.rss: int | None = None
        """Bytes of its memory that is in use, once it is ready."""
        self._last: deque[bytes] = deque(maxlen=LAST_LINES)
        self._listens = asyncio.ensure_future(self._listen())

    @classmethod
    async def begun(cls, argv: Sequence[str], path: Path) -> _Running:
        """Start it and wait until it answers. Raises HostError: code `translator_failed`, with its last words."""
        with listen.bind_unix(path) as sock:
            fd = sock.fileno()
            process = await asyncio.create_subprocess_exec(
                *(*argv, "--fd", str(fd)),
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                pass_fds=(fd,),
                env=_environment(os.environ),
                start_new_session=True,  # Ctrl-C in the daemon's terminal is the daemon's
            )
        running = cls(process, await Upstream(str(path)).__aenter__())
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
        assert self.process.stderr  # noqa: S101 - a pipe was asked for
        with suppress(ValueError):  # a line longer than asyncio keeps
            while line := await self.process.stderr.readline():
                self._last.append(line)

    def _failed(self, how: str) -> HostError:
        words = self._last[-1].decode("utf-8", "replace").strip() if self._last else "without a word"
        return HostError(
            f"The translator did not start: {how} ({words}).",
            code="translator_failed",
            hint="`sparkdash doctor` looks at it; `pip install 'sparkdash[translate]'` mends a broken installation.",
        )

    async def why(self) -> UpstreamError:
        """What the client is told when the connection to it ends too soon."""
        with suppress(
            TimeoutError
        ):  # a process that is killed lets go of its sockets a moment before it is seen to end
            async with asyncio.timeout(REAP_S):
                await self.process.wait()
        if self.lives:
            words = "The engine broke off in the middle of its answer, which was being translated."
            return UpstreamError(words, code="engine_died", hint="Its log says more: `sparkdash logs PROFILE`.")
        words = f"The translator ended in the middle of an answer (code {self.process.returncode})."
        return UpstreamError(words, code="translator_died", hint="The next request starts it again.")

    async def end(self) -> None:
        """It is told by the end of its standard input, and killed if that is not enough."""
        await self.upstream.__aexit__()
        if self.process.stdin:
            self.process.stdin.close()
        try:
            async with asyncio.timeout(listen.GRACE_S + 2):
                await self.process.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                self.process.kill()
            await self.process.wait()
        await self._listens
        self.process._transport.close()  # type: ignore[attr-defined]  # there is no public way to let its pipes go


def _environment(ours: Mapping[str, str]) -> dict[str, str]:
    return {name: ours[name] for name in _HANDED_ON if name in ours} | {"PYTHONUNBUFFERED": "1"}


def _missing() -> HostError:
    return HostError(
        "This engine does not speak the request's protocol, and the translator for that is not installed.",
        code="translator_missing",
        status=501,
        hint="Install it where sparkdash is, with `pip install 'sparkdash[translate]'`, or have the client use chat completions.",
    )
