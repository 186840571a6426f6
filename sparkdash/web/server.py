"""The server behind `sparkdash web`: textual-serve with a guard before every request.

Owns: the guard's place before textual-serve, which itself checks neither Host, Origin nor caller and starts a process
for each connection. Must not know what a tab shows. Loads textual-serve and aiohttp.
"""

from __future__ import annotations

import asyncio
import shlex
import signal
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from aiohttp import web
from textual_serve.server import Server

from sparkdash.errors import HostError
from sparkdash.web.visitor_check import Visit, VisitorCheck

LOOPBACK = "127.0.0.1"
PAGE = Path(__file__).parent / "page"
FILES = ("dashboard.css", "focus.js")
"""Files beside the page."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "font-src 'self' data:; connect-src 'self' ws://{host}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The terminal emulator writes style sheets of its own, hence 'unsafe-inline' for styles."""
GUARDED = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class WebServer(Server):
    """textual-serve for the dashboard; requests pass `visitors` first. `command` draws one tab."""

    def __init__(self, visitors: VisitorCheck, command: Sequence[str]) -> None:
        super().__init__(shlex.join(command), LOOPBACK, title="sparkdash", templates_path=PAGE)
        self.visitors = visitors
        self.cookie_name = "sparkdash-web"

    async def make_app(self) -> web.Application:
        """Make the application, with the guard before all of its routes."""
        app = await super()._make_app()
        for name in FILES:
            app.router.add_get(f"/{name}", _own_file)

        @web.middleware
        async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
            return await self._guarded(request, handler)

        app.middlewares.append(guard)
        return app

    async def on_startup(self, app: web.Application) -> None:
        """Print nothing: the command line has printed the address."""

    async def handle_index(self, request: web.Request) -> web.Response:
        """Answer with the page of the terminal, for the very address that was asked."""
        import aiohttp_jinja2

        size = request.query.get("fontsize", "")
        values = {
            "app_websocket_url": f"ws://{request.host}/ws",
            "font_size": int(size) if size.isdecimal() and len(size) < 3 else 16,
        }
        return aiohttp_jinja2.render_template("app_index.html", request, values)

    async def handle_websocket(self, request: web.Request) -> web.WebSocketResponse:
        """Serve one tab until it is closed."""
        self.visitors.sessions += 1
        try:
            return await super().handle_websocket(request)
        finally:
            self.visitors.sessions -= 1

    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        upgrades = request.path == "/ws"
        visit = self.visitors.check(
            request.host,
            request.headers.get("Origin"),
            token=request.query.get("token"),
            cookie=request.cookies.get(self.cookie_name),
            upgrades=upgrades,
        )
        if visit is Visit.GIVE_COOKIE:
            answer: web.StreamResponse = web.Response(status=303, headers={"Location": "/"})
            answer.set_cookie(self.cookie_name, self.visitors.cookie, httponly=True, samesite="Strict", path="/")
        elif visit is not Visit.WELCOME:
            status = 503 if visit is Visit.FULL else 403
            answer = web.Response(status=status, text=f"{visit.value}\n")
        else:
            answer = await handler(request)
        if not answer.prepared:
            answer.headers.update(GUARDED)
            answer.headers["Content-Security-Policy"] = POLICY.format(host=request.host)
        return answer


async def _own_file(request: web.Request) -> web.FileResponse:
    return web.FileResponse(PAGE / request.path.removeprefix("/"))


async def serve_dashboard(port: int, command: Sequence[str], ready: Callable[[str], object]) -> None:
    """Serve until SIGINT or SIGTERM. `ready` gets the address with the token; `command` draws one tab.

    Raises:
        HostError: the port cannot be used.
    """
    server = WebServer(VisitorCheck(), command)
    runner = web.AppRunner(await server.make_app(), access_log=None, shutdown_timeout=5.0)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, LOOPBACK, port).start()
        except OSError as error:
            raise HostError(
                f"Port {port} cannot be used: {error.strerror}.",
                code="port_in_use",
                hint="`sparkdash web --port 0` takes a free one.",
            ) from None
        taken = runner.addresses[0][1]
        server.cookie_name = f"sparkdash-web-{taken}"  # a browser sends cookies to every port of a name
        ended = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, ended.set)
        ready(f"http://{LOOPBACK}:{taken}/?token={server.visitors.token}")
        await ended.wait()
    finally:
        await runner.cleanup()
