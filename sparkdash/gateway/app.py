"""App: the gateway as one ASGI application.

Owns: which side a path belongs to, and how errors of the control side look. `/v1/*` never passes through FastAPI.
"""

from __future__ import annotations

import socket
from functools import cached_property
from urllib.parse import unquote

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from sparkdash import __version__
from sparkdash.access.key import Scope as Side
from sparkdash.domain.profile import AUTO
from sparkdash.errors import AdmissionError, SparkdashError
from sparkdash.gateway import audit, control, guard, llamacpp_router, models, ollama, passthrough, problems, raw
from sparkdash.gateway.access import Access
from sparkdash.gateway.deps import Deps
from sparkdash.gateway.exchange import KEY, Exchange, Message, Receive, Send
from sparkdash.gateway.head import Scope
from sparkdash.gateway.narrow import narrowed
from sparkdash.gateway.route import OLLAMA, Dialect, is_control, is_plain, understand
from sparkdash.settings import Settings
from sparkdash.wire import line

__all__ = ["Deps", "Gateway", "build"]

READ = ("GET", "HEAD")
ALIVE = frozenset({"/health", "/v1/health", "/ping", "/", "/api/hello"})
"""What clients call to see whether anything is there: 200 while the gateway is up, whatever the engines do."""


def build(deps: Deps) -> Gateway:
    """The whole gateway."""
    return Gateway(deps)


class Gateway:
    """An ASGI application."""

    def __init__(self, deps: Deps) -> None:
        self._deps = deps
        self._doors = _doors(deps.settings)
        self._access = Access(
            deps.keys,
            beyond=deps.settings.beyond_loopback,
            used_today=deps.used_today,
            clock=deps.clock,
            monotonic=deps.monotonic,
        )

    @cached_property
    def control(self) -> FastAPI:
        """The FastAPI side, with the OpenAPI description. It takes 50 ms to build, when it is first asked for: see `ready`."""
        return _control(self._deps)

    def ready(self) -> Gateway:
        """Itself, with nothing left to be built while somebody waits."""
        _ = self.control
        return self

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One connection's scope; uvicorn calls it."""
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close"})
        else:
            await self.control(scope, receive, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = Exchange(scope, receive, send, line(scope))
        path, unix = scope["path"], guard.by_unix_socket(scope)
        if not exchange.head.is_let_in:
            try:
                guard.check(exchange.headers, self._doors, method=exchange.method, path=path, unix=unix)
            except AdmissionError as error:
                await exchange.refuse(error)
                return
            exchange.head.is_let_in = True
        if (origin := exchange.headers.get("origin")) is not None:
            send = _readable(send, origin)
            exchange = Exchange(scope, receive, send, line(scope), guard.granted(origin))
        if guard.is_preflight(exchange.headers, exchange.method):
            await exchange.answer(204, b"", guard.preflight(exchange.headers))
        elif path in ALIVE and exchange.method in READ:
            await exchange.answer(200, control.Health().model_dump_json().encode(), _JSON)
        else:
            await self._for_caller(exchange, receive, send, unix=unix)

    async def _for_caller(self, exchange: Exchange, receive: Receive, send: Send, *, unix: bool) -> None:
        side = Side.CONTROL if is_control(exchange.scope["path"]) else Side.INFERENCE
        try:
            caller = self._access.caller(exchange.headers, unix=unix)
            self._access.admit(caller, side, counts=exchange.method not in READ)
        except AdmissionError as error:
            if exchange.scope["path"].rstrip("/") in OLLAMA:
                await ollama.refuse(exchange, error)
                return
            route = understand(exchange.raw_path)
            await exchange.refuse(error, route.dialect if route else Dialect.OTHER)
            return
        exchange.scope[KEY] = caller.key
        if side is Side.INFERENCE or exchange.method in READ or self._deps.audit is None:
            await self._answer(exchange, receive, send)
            return
        record = audit.Record(caller.who, exchange, self._deps.clock())
        receive, send = record.hearing(receive), record.seeing(send, self._deps.audit)
        await self._answer(Exchange(exchange.scope, receive, send), receive, send)

    async def _answer(self, exchange: Exchange, receive: Receive, send: Send) -> None:
        path: str = exchange.scope["path"]
        deps = narrowed(self._deps, exchange.key)
        if is_plain(exchange.raw_path):
            await passthrough.relay(deps, exchange)
        elif path.rstrip("/") in OLLAMA:
            await ollama.serve(deps, exchange, receive, send)
        elif path.startswith("/api/"):
            await self.control(exchange.scope, receive, send)
        elif (answered := llamacpp_router.handler(exchange)) is not None:
            await answered(deps, exchange)
        elif path.startswith("/upstream/"):
            await raw.serve(deps, exchange)
        elif (name := _model_path(exchange)) is not None:
            await _models(deps, exchange, name)
        else:
            await passthrough.relay(deps, exchange)


async def _models(deps: Deps, exchange: Exchange, name: str) -> None:
    """`name` is empty for the list."""
    if exchange.method not in READ:
        await exchange.refuse(problems.of_status(405, f"The model list is read with GET, not {exchange.method}"))
        return
    await deps.refresh()
    try:
        body = _model(deps, name) if name else models.listing(deps.bus.snapshot)
    except SparkdashError as error:
        await exchange.refuse(error)
        return
    await exchange.answer(200, problems.encode(body), _JSON)


_JSON = [(b"content-type", b"application/json")]


def _model_path(exchange: Exchange) -> str | None:
    path = unquote(exchange.raw_path).rstrip("/")
    path = path.removeprefix("/v1")
    if path == "/models":
        return ""
    return path.removeprefix("/models/") if path.startswith("/models/") else None


def _model(deps: Deps, name: str) -> dict[str, object]:
    snapshot = deps.bus.snapshot
    if name == AUTO:
        return models.auto(snapshot)
    found = deps.catalog().find(name).name
    summary = snapshot.profile(found)
    if summary is None or summary.cannot_run is not None:
        why = summary.cannot_run if summary else "it is not in the list yet"
        raise AdmissionError(f"Profile {found!r} cannot run: {why}.", code="model_not_found", status=404)
    return models.item(snapshot, summary, name)


def _doors(settings: Settings) -> guard.Doors:
    beyond = settings.beyond_loopback
    box = socket.gethostname().lower()
    own = (box, f"{box}.local") if beyond else ()
    return guard.Doors((*own, *(name.lower() for name in settings.host_names)), beyond, settings.allowed_origins)


def _readable(send: Send, origin: str) -> Send:
    """`send`, with what lets a page of that origin read the answer."""

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], *guard.granted(origin)]}
        await send(message)

    return sent


def _control(deps: Deps) -> FastAPI:
    api = FastAPI(
        title="sparkdash control API",
        version=__version__,
        openapi_url="/api/openapi.json",
        docs_url=None,  # its page loads scripts from elsewhere, into the origin that may stop engines
        redoc_url=None,
        redirect_slashes=False,
    )
    api.include_router(control.router(deps))
    api.add_exception_handler(SparkdashError, _expected)
    api.add_exception_handler(HTTPException, _bare)
    api.add_exception_handler(RequestValidationError, _misfit)
    api.add_exception_handler(Exception, _fault)
    return api


async def _expected(_request: Request, error: Exception) -> Response:
    assert isinstance(error, SparkdashError)  # noqa: S101 - registered for it
    return _rendered(error)


async def _bare(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for it
    return _rendered(problems.of_status(error.status_code, f"{request.method} {request.url.path}: {error.detail}"))


async def _misfit(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for it
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"] if part != "body") or "the body"
    return _rendered(
        AdmissionError(f"{where}: {first['msg']}.", code="invalid_request", hint="See GET /api/openapi.json.")
    )


async def _fault(_request: Request, _error: Exception) -> Response:
    return _rendered(SparkdashError("sparkdash itself failed on this request.", hint="Its log says more."))


def _rendered(error: SparkdashError) -> Response:
    sent = {name.decode(): value.decode() for name, value in problems.headers(error)}
    return JSONResponse(problems.envelope(error, Dialect.OTHER), error.status, sent)
