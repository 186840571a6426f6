"""The server behind `sparkdash web`: textual-serve with a guard before every request."""

from __future__ import annotations

import asyncio
import shlex
import signal
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from aiohttp import web
from textual_serve.server import Server

from sparkdash.errors import HostError
from sparkdash.web.visitors import KeyedVisitorCheck, Place, Visit, VisitorCheck

LOOPBACK = "127.0.0.1"
KEY_LOOK_S = 5.0
"""Pause between two looks whether the key of an open tab is still good."""
END_S = 5.0
"""Longest wait for the process of a tab that has been closed."""
PAGE = Path(__file__).parent / "page"
FILES = ("dashboard.css", "focus.js")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "font-src 'self' data:; connect-src 'self' {socket}://{host}; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'"
)
"""The terminal emulator writes style sheets of its own, hence 'unsafe-inline' for styles."""
GUARDED = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
WRONG_KEY = (
    "<p role=alert>No key with the scope control for the whole box has this secret. "
    "`sparkdash keys list` shows them.</p>"
)
_STATUS = {Visit.FULL: 503, Visit.NO_KEY: 401}
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class WebServer(Server):
    """textual-serve for the dashboard; requests pass `visitors` first. `command` draws one tab."""

    def __init__(self, visitors: VisitorCheck, command: Sequence[str]) -> None:
        super().__init__(shlex.join(command), LOOPBACK, title="sparkdash", templates_path=PAGE)
        self.visitors = visitors
        self.cookie_name = "sparkdash-web"

    async def make_app(self) -> web.Application:
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
        import aiohttp_jinja2

        size = request.query.get("fontsize", "")
        values = {
            "app_websocket_url": f"{_socket_scheme(self.visitors)}://{request.host}/ws",
            "font_size": int(size) if size.isdecimal() and len(size) < 3 else 16,
        }
        return aiohttp_jinja2.render_template("app_index.html", request, values)

    async def handle_websocket(self, request: web.Request) -> web.WebSocketResponse:
        """Serve one tab until it is closed, or until its key is revoked or has expired."""
        self.visitors.sessions += 1
        tab = asyncio.ensure_future(super().handle_websocket(request))
        try:
            while not (await asyncio.wait({tab}, timeout=KEY_LOOK_S))[0]:
                if request.transport and not self.visitors.is_welcome(request.cookies.get(self.cookie_name)):
                    request.transport.close()  # at once, however long the tab's process takes to end
            return await tab
        finally:
            tab.cancel()
            await asyncio.wait({tab}, timeout=END_S)  # a loop that ends meanwhile would leave the tab's process behind
            self.visitors.sessions -= 1

    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        answer: web.StreamResponse
        upgrades = request.path == "/ws"
        visit = self.visitors.check(
            request.host,
            request.headers.get("Origin"),
            token=request.query.get("token"),
            cookie=request.cookies.get(self.cookie_name),
            upgrades=upgrades,
        )
        if visit is Visit.GIVE_COOKIE:
            answer = self._opened(self.visitors.cookie)
        elif visit is Visit.NO_KEY and request.path in ("/", "/key"):
            answer = await self._ask_for_key(request)
        elif visit is not Visit.WELCOME:
            answer = web.Response(status=_STATUS.get(visit, 403), text=f"{visit.value}\n")
        else:
            answer = await handler(request)
        if not answer.prepared:
            answer.headers.update({name: value for name, value in GUARDED.items() if name not in answer.headers})
            scheme = _socket_scheme(self.visitors)
            answer.headers["Content-Security-Policy"] = POLICY.format(host=request.host, socket=scheme)
        return answer

    def _opened(self, cookie: str) -> web.StreamResponse:
        answer = web.Response(status=303, headers={"Location": "/"})
        secure = self.visitors.scheme == "https"
        answer.set_cookie(self.cookie_name, cookie, httponly=True, samesite="Strict", path="/", secure=secure)
        return answer

    async def _ask_for_key(self, request: web.Request) -> web.StreamResponse:
        """Answer with the page that takes a key, or with the cookie for the key that it took."""
        wrong = ""
        if request.method == "POST" and request.headers.get("Origin") and isinstance(self.visitors, KeyedVisitorCheck):
            secret = str((await request.post()).get("key", "")).strip()
            cookie = self.visitors.let_in(secret)
            if cookie is not None:
                return self._opened(cookie)
            wrong = WRONG_KEY
        page = (PAGE / "key.html").read_text().replace("<!-- wrong -->", wrong)
        # under no-referrer browsers send "Origin: null" with a form
        headers = {"Referrer-Policy": "same-origin"}
        return web.Response(status=401, text=page, content_type="text/html", headers=headers)


def _socket_scheme(visitors: VisitorCheck) -> str:
    return "wss" if visitors.scheme == "https" else "ws"


async def _own_file(request: web.Request) -> web.FileResponse:
    return web.FileResponse(PAGE / request.path.removeprefix("/"))


async def serve_dashboard(
    place: Place, visitors: VisitorCheck, command: Sequence[str], ready: Callable[[str], object]
) -> None:
    """Serve until SIGINT or SIGTERM. `ready` gets the address, on loopback with the token; `command` draws one tab.

    Raises:
        HostError: the port cannot be used.
    """
    server = WebServer(visitors, command)
    runner = web.AppRunner(await server.make_app(), access_log=None, shutdown_timeout=5.0)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, place.host, place.port, ssl_context=place.tls).start()
        except OSError as error:
            raise HostError(
                f"Port {place.port} of {place.host} cannot be used: {error.strerror}.",
                code="port_in_use",
                hint="`sparkdash web --port 0` takes a free one.",
            ) from None
        taken = runner.addresses[0][1]
        server.cookie_name = f"sparkdash-web-{taken}"  # a browser sends cookies to every port of a name
        ended = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, ended.set)
        host = f"[{place.host}]" if ":" in place.host else place.host
        token = "" if isinstance(visitors, KeyedVisitorCheck) else f"?token={visitors.token}"
        ready(f"{visitors.scheme}://{host}:{taken}/{token}")
        await ended.wait()
    finally:
        await runner.cleanup()
