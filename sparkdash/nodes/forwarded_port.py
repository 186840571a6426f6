"""Forwarded port: whether a program listens behind it already.

Owns: the look through the forward. Must not know how a port is forwarded.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from sparkdash.errors import HostError

REFUSED_S = 3.0
"""Time in which ssh closes a connection to a port on which nobody listens; it takes a round trip."""


async def refuse_taken_port(node: str, port: int) -> None:
    """Make sure that nobody listens on the node behind 127.0.0.1:`port`, which is forwarded to it.

    Another sparkdash on that box chooses its ports without asking us, and its engine would answer for ours.

    Raises:
        HostError: port_in_use.
    """
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return
    try:
        async with asyncio.timeout(REFUSED_S):
            is_taken = await reader.read(1) != b""
    except TimeoutError:
        is_taken = True
    except OSError:
        is_taken = False
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
    if is_taken:
        raise HostError(
            f"A program listens on port {port} of {node} already.",
            code="port_in_use",
            hint=f"`ss -ltnp sport = :{port}` on {node} names the program; another sparkdash there should have other "
            "`engine_ports` in its config.toml.",
        )
