"""Servers in a test's own process."""

from __future__ import annotations

import asyncio
from typing import Any


async def deserted(server: Any) -> None:
    """Once a `listen.Server` has seen that its clients left it ends without a pause; one that stays is not waited for."""
    for _ in range(20):
        if not server.state.connections:
            break
        await asyncio.sleep(0)
