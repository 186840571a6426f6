"""Servers of the tests that close while they accept leave no transport to the garbage collector."""

from __future__ import annotations

import asyncio
import gc
import socket
import warnings

import pytest


@pytest.mark.parametrize("turns", range(5))
def test_a_server_that_closes_while_it_accepts_leaves_no_open_transport(turns: int) -> None:
    async def accept_and_close() -> None:
        server = await asyncio.get_running_loop().create_server(asyncio.Protocol, "127.0.0.1", 0)
        with socket.create_connection(server.sockets[0].getsockname()):
            for _ in range(turns):
                await asyncio.sleep(0)
            server.close()
            for _ in range(6):
                await asyncio.sleep(0)

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        asyncio.run(accept_and_close())
        gc.collect()
    assert [str(each.message) for each in told if each.category is ResourceWarning] == []
