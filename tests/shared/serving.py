"""Servers in a test's own process."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aiohttp import web


async def deserted(server: Any) -> None:
    """Once a `listen.Server` has seen that its clients left it ends without a pause; one that stays is not waited for."""
    for _ in range(20):
        if not server.state.connections:
            break
        await asyncio.sleep(0)


async def until(bus: Any, seen: Callable[[Any], object]) -> Any:
    """The bus's snapshot, once that holds of it."""
    subscription = bus.subscribe()
    try:
        async for _ in subscription:
            if seen(bus.snapshot):
                return bus.snapshot
    finally:
        bus.unsubscribe(subscription)
    raise AssertionError("the bus has ended")


@asynccontextmanager
async def aiohttp_server(app: "web.Application") -> AsyncIterator[str]:
    """Serve with aiohttp; gives the root URL."""
    from aiohttp import web

    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
