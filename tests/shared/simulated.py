"""A loaded simulated engine inside this process."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

from sparkdash.domain.profile import Profile
from sparkdash.sim.app import App
from sparkdash.sim.http_server import serve_http
from sparkdash.sim.speed import SimulationClock


@contextlib.asynccontextmanager
async def serving(
    profile: Profile, *, port: int = 0, clock: SimulationClock | None = None
) -> AsyncIterator[tuple[App, str]]:
    """Yield its App and its root URL."""
    app = App(profile, clock)
    stepping = asyncio.create_task(app.engine.run(), name=f"sim {profile.name}")
    # asyncio sends small pieces at once only through a socket that says that it is TCP
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("127.0.0.1", port))
    site = await serve_http(app.handle, sock)
    try:
        yield app, f"http://127.0.0.1:{sock.getsockname()[1]}"
    finally:
        site.close()
        stepping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await stepping
