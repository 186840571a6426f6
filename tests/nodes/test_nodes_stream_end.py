"""The end of a node's stream of figures, together with that of the connection under it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from sparkdash.nodes.agent.figures import FiguresStream


class ClosedPipe:
    """A pipe whose other end is closed."""

    def is_closing(self) -> bool:
        return True

    async def read(self, _size: int) -> bytes:
        return b""


class EndingProcess:
    """An ssh that has closed its pipes and whose end a test decides on."""

    stdin = stdout = stderr = ClosedPipe()

    def __init__(self) -> None:
        self.code = asyncio.get_running_loop().create_future()
        self.is_awaited = asyncio.Event()

    async def wait(self) -> int:
        self.is_awaited.set()
        return int(await self.code)


class EndingCommands:
    """A connection whose only child is that process."""

    def __init__(self, process: EndingProcess) -> None:
        self.process = process

    @asynccontextmanager
    async def child(self, argv: Sequence[str]) -> AsyncIterator[Any]:
        yield self.process

    async def run(self, argv: Sequence[str], **_: object) -> Any:
        raise NotImplementedError


async def test_a_stream_that_is_cancelled_in_the_moment_of_its_end_is_cancelled() -> None:
    process = EndingProcess()
    stream = FiguresStream("spark2", EndingCommands(process), "me", lambda _: None)
    following = asyncio.create_task(stream.follow(lambda: None))
    async with asyncio.timeout(20):
        await process.is_awaited.wait()
        process.code.set_result(255)
        await asyncio.sleep(0)  # the end is known, and not handed on yet
        following.cancel()
        with pytest.raises(asyncio.CancelledError):
            await following
