"""The end of a node's stream of figures, together with that of the connection under it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from sparkdash.nodes.agent.figures import FiguresStream


async def test_a_stream_that_is_cancelled_in_the_moment_of_its_end_is_cancelled() -> None:
    """The connection's ssh has closed its pipes."""
    code, is_awaited = asyncio.get_running_loop().create_future(), asyncio.Event()

    async def nothing(_size: int) -> bytes:
        return b""

    async def wait() -> int:
        is_awaited.set()
        return int(await code)

    @asynccontextmanager
    async def child(_argv: Any) -> AsyncIterator[Any]:
        pipe = SimpleNamespace(is_closing=lambda: True, read=nothing)
        yield SimpleNamespace(stdin=pipe, stdout=pipe, stderr=pipe, wait=wait)

    connection: Any = SimpleNamespace(child=child)
    following = asyncio.create_task(FiguresStream("spark2", connection, "me", print).follow(lambda: None))
    async with asyncio.timeout(20):
        await is_awaited.wait()
        code.set_result(255)
        await asyncio.sleep(0)  # the end is known, and not handed on yet
        following.cancel()
        with pytest.raises(asyncio.CancelledError):
            await following
