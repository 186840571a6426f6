"""A clock that does not wait, engines in this process and in their own, and a way to read their metrics."""

import asyncio
import contextlib
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from leaping import LeapingClock

from sparkdash.domain.profile import EngineKind, Profile, SimSpec
from sparkdash.telemetry.exposition import Scrape, parse_exposition


@dataclass
class Child:
    """A simulated engine in a process of its own."""

    process: asyncio.subprocess.Process
    port: int
    folder: Path
    lines: list[str] = field(default_factory=list)
    unread: str = ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def until(self, phrase: str) -> str:
        """The next log line that holds `phrase`; carriage returns end lines too."""
        while True:
            while ends := re.search(r"[\r\n]+", self.unread):
                line, self.unread = self.unread[: ends.start()], self.unread[ends.end() :]
                self.lines.append(line)
                if phrase in line:
                    return line
            assert await self._more(), f"the log ended without {phrase!r}: {self.lines}"

    async def rest(self) -> int:
        """Read to the end; the exit code."""
        while await self._more():
            pass
        self.lines += re.split(r"[\r\n]+", self.unread)
        return await self.process.wait()

    async def _more(self) -> bool:
        assert self.process.stdout is not None
        data = await self.process.stdout.read(65536)
        self.unread += data.decode()
        return bool(data)


def profile_of(name: str = "rehearsal", *, context: int = 8192, **sim: Any) -> Profile:
    return Profile(name=name, engine=EngineKind.SIM, serves=("alias",), context=context, sim=SimSpec(**sim))


async def scrape(url: str) -> Scrape:
    async with httpx.AsyncClient(verify=False, timeout=60) as http:
        return parse_exposition((await http.get(f"{url}/metrics")).text)


async def poll(check: Callable[[], bool]) -> None:
    """Wait until `check` holds; for what happens in another process, which cannot wake us. pytest's time-out ends it."""
    while not check():  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(0.02)


@pytest.fixture
def virtual_clock() -> LeapingClock:
    return LeapingClock()


@pytest.fixture
def claims_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "claims"
    folder.mkdir()
    return folder


@pytest.fixture
async def start(claims_folder: Path, unused_tcp_port: int) -> AsyncIterator[Callable[[Profile], Awaitable[Child]]]:
    """Start simulated engines as processes of their own session; whatever is left of them is killed at the end."""
    children: list[Child] = []

    async def begin(profile: Profile) -> Child:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "sparkdash.sim", "--port", str(unused_tcp_port)),
            *("--profile-json", profile.model_dump_json()),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={"SPARKDASH_SIM_DIR": str(claims_folder), "PATH": ""},
            start_new_session=True,
        )
        children.append(Child(process, unused_tcp_port, claims_folder))
        return children[-1]

    yield begin
    for child in children:
        await _end(child)


async def _end(child: Child) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.process.pid, signal.SIGKILL)
    await child.rest()
