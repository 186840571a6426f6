"""App: the gateway as one ASGI application.

Owns: which side a path belongs to, and how errors of the control side look. `/v1/*` never passes through FastAPI.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import cached_property, partial
from http import HTTPStatus
from urllib.parse import unquote

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from sparkdash import __version__
from sparkdash.access.key import Scope as Side
from sparkdash.api.answers import GatewayHealth
from sparkdash.domain.profile import AUTO
from sparkdash.errors import AdmissionError, SparkdashError
from sparkdash.gateway import control
from sparkdash.gateway.admission import audit, guard, rights
from sparkdash.gateway.admission.access import AccessControl, Caller
from sparkdash.gateway.admission.narrow import narrow_deps
from sparkdash.gateway.admission.rights import READ
from sparkdash.gateway.apis import llamacpp_router, models, ollama, raw_upstream
from sparkdash.gateway.deps import Deps
from sparkdash.gateway.http.exchange import ClientGone, Exchange, Receive, Send, replay_body
from sparkdash.gateway.http.request_head import ParsedHead, Scope, Way
from sparkdash.gateway.protocol import problems
from sparkdash.gateway.protocol.route import OLLAMA, Dialect, find_route, is_plain
from sparkdash.gateway.relay import passthrough
from sparkdash.limits import CONTROL_BODY_MIB
from sparkdash.settings import Settings
from sparkdash.wire import RequestChannel

__all__ = ["Deps", "Gateway", "build"]

_JSON = [(b"content-type", b"application/json")]
_RELAYED = Way(passthrough.relay_request, rights.INFERENCE, counts=True, audited=False)
"""That of nearly every request."""

Answering = Callable[[Deps, Exchange], Awaitable[None]]


def build(deps: Deps) -> Gateway:
    """The whole gateway."""
    return Gateway(deps)


class Gateway:
    """An ASGI application, and one that our own server hands its lines (see `wire`)."""

    def __init__(self, deps: Deps) -> None:
        self._deps = deps
        self._doors = _doors(deps.settings)
        self._access = AccessControl(
            deps.keys,
            beyond=deps.settings.beyond_loopback,
            used_today=deps.used_today,
            clock=deps.clock,
            monotonic=deps.monotonic,
        )

    @cached_property
    def control(self) -> FastAPI:
        """The FastAPI side, with the OpenAPI description. It takes 50 ms to build, when it is first asked for: see `ready`."""
        return _control()

    def ready(self) -> Gateway:
        """Itself, with nothing left to be built while somebody waits."""
        _ = self.control
        return self

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One connection's scope, from any server."""
        if scope["type"] == "http":
            await self._answer(Exchange.from_asgi(scope, receive, send))
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close"})
        else:
            await self.control(scope, receive, send)

    def serve_channel(self, line: RequestChannel) -> Awaitable[None]:
        """One request, from our own server."""
        return self._answer(Exchange(ParsedHead.of_channel(line), line))

    def _answer(self, exchange: Exchange) -> Awaitable[None]:
        """Who it is that answers is found out in the call."""
        head, deps = exchange.head, self._deps
        try:
            way = head.way or self._let_in(head)
        except AdmissionError as error:
            return _refuse(exchange, error)
        if way.right.scope is not None:
            try:
                caller = self._access.caller(head)
                if (key := caller.key) is not None:
                    self._access.admit(key, way.right, counts=way.counts)
                    exchange.key, deps = key, narrow_deps(deps, key)
            except AdmissionError as error:
                return _refuse(exchange, error)
            if way.audited:
                exchange = self._audited(exchange, caller)
        return way.answer(deps, exchange)

    def _let_in(self, head: ParsedHead) -> Way:
        """Check the size of a request and the guard's rules. Raises AdmissionError when either refuses it."""
        guard.check_size(len(head.raw_path) + len(head.query), len(head.raw_headers))
        head.granted = guard.check_page(head.headers, self._doors, path=head.path, unix=head.unix)
        head.way = way = self._way(head)
        return way

    def _way(self, head: ParsedHead) -> Way:
        if head.method == "POST" and is_plain(head.raw_path):
            return _RELAYED
        if guard.is_preflight(head.headers, head.method):
            return Way(_may_ask, rights.ANYBODY, counts=False, audited=False)
        right = rights.right_of(head.method, head.path)
        if right is rights.ANYBODY:
            return Way(_alive, right, counts=False, audited=False)
        reads, controls = head.method in READ, right.scope is Side.CONTROL
        return Way(self._answering(head), right, counts=not (reads or controls), audited=controls and not reads)

    def _answering(self, head: ParsedHead) -> Answering:
        """Whose request it is to answer."""
        path = head.path
        if path.rstrip("/") in OLLAMA:
            return ollama.serve_ollama
        if path.startswith("/api/"):
            return self._controlled
        if (answering := llamacpp_router.router_handler(head)) is not None:
            return answering
        if path.startswith("/upstream/"):
            return raw_upstream.serve_raw
        if (name := _model_path(head)) is not None:
            return partial(_models, name=name)
        return passthrough.relay_request

    async def _controlled(self, deps: Deps, exchange: Exchange) -> None:
        try:
            with deps.body_budget.share() as share:
                body = await exchange.body(CONTROL_BODY_MIB, share, deps.settings.body_s)
        except ClientGone:
            return
        except SparkdashError as error:
            await exchange.refuse(error)
            return
        scope, receive, send = exchange.asgi_triple()
        scope["path"] = exchange.head.path  # what it was let in for is what is looked up
        control.set_caller(scope, deps, exchange.key)
        await self.control(scope, replay_body(body, receive), send)

    def _audited(self, exchange: Exchange, caller: Caller) -> Exchange:
        """The same, with a line about it kept."""
        if self._deps.audit is None:
            return exchange
        scope, receive, send = exchange.asgi_triple()
        record = audit.AuditRecord(caller.who, scope, self._deps.clock())
        return Exchange.from_asgi(scope, record.hearing(receive), record.seeing(send, self._deps.audit), caller.key)


async def _may_ask(_deps: Deps, exchange: Exchange) -> None:
    await exchange.answer(204, b"", guard.preflight(exchange.head.headers))


async def _alive(_deps: Deps, exchange: Exchange) -> None:
    if exchange.method not in READ:
        await exchange.refuse_method(exchange.head.path, READ)
        return
    await exchange.answer(200, GatewayHealth().model_dump_json().encode(), _JSON)


def _refuse(exchange: Exchange, error: AdmissionError) -> Awaitable[None]:
    """Its caller, in the words of whom it was meant for."""
    if exchange.head.path.rstrip("/") in OLLAMA:
        return ollama.refuse_ollama(exchange, error)
    route = find_route(exchange.raw_path)
    return exchange.refuse(error, route.dialect if route else Dialect.OTHER)


async def _models(deps: Deps, exchange: Exchange, name: str) -> None:
    """`name` is empty for the list."""
    if exchange.method not in READ:
        await exchange.refuse_method("The model list", READ)
        return
    await deps.refresh()
    try:
        body = _model(deps, name) if name else models.list_models(deps.bus.snapshot, exchange.head.agent)
    except SparkdashError as error:
        await exchange.refuse(error)
        return
    await exchange.answer(200, problems.encode_json(body), _JSON)


def _model_path(head: ParsedHead) -> str | None:
    path = unquote(head.raw_path).rstrip("/")
    path = path.removeprefix("/v1")
    if path == "/models":
        return ""
    return path.removeprefix("/models/") if path.startswith("/models/") else None


def _model(deps: Deps, name: str) -> dict[str, object]:
    snapshot = deps.bus.snapshot
    if name == AUTO:
        return models.auto_item(snapshot)
    found = deps.catalog().find(name).name
    summary = snapshot.profile(found)
    if summary is None or summary.cannot_run is not None:
        why = summary.cannot_run if summary else "it is not in the list yet"
        raise AdmissionError(f"Profile {found!r} cannot run: {why}.", code="model_not_found", status=404)
    return models.model_item(snapshot, summary, name)


def _doors(settings: Settings) -> guard.OriginPolicy:
    beyond = settings.beyond_loopback
    box = socket.gethostname().lower()
    own = (box, f"{box}.local", *guard.FROM_CONTAINERS) if beyond else ()
    return guard.OriginPolicy((*own, *(name.lower() for name in settings.host_names)), beyond, settings.allowed_origins)


def _control() -> FastAPI:
    api = FastAPI(
        title="sparkdash control API",
        version=__version__,
        openapi_url="/api/openapi.json",
        docs_url=None,  # its page loads scripts from elsewhere, into the origin that may stop engines
        redoc_url=None,
        redirect_slashes=False,
    )
    router = control.router()
    api.include_router(router)
    api.add_exception_handler(SparkdashError, _expected)
    api.add_exception_handler(HTTPException, partial(_bare, router.routes))
    api.add_exception_handler(RequestValidationError, _misfit)
    api.add_exception_handler(Exception, _fault)
    return api


async def _expected(_request: Request, error: Exception) -> Response:
    assert isinstance(error, SparkdashError)  # noqa: S101 - registered for it
    return _rendered(error)


async def _bare(routes: Sequence[BaseRoute], request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for it
    response = _rendered(
        problems.status_error(error.status_code, f"{request.method} {request.url.path}: {error.detail}")
    )
    response.headers.update(error.headers or {})
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED and (allowed := _methods(request.url.path, routes)):
        response.headers["allow"] = ", ".join(allowed)
    return response


def _methods(path: str, routes: Iterable[BaseRoute]) -> list[str]:
    """List the methods of all routes that fit the path. Starlette itself names those of the first one only."""
    fitting = [one for one in routes if isinstance(one, Route) and one.path_regex.match(path)]
    exact = [one for one in fitting if one.path == path]
    return sorted({method for one in exact or fitting for method in one.methods or ()})


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
    sent = {name.decode(): value.decode() for name, value in problems.error_headers(error)}
    return JSONResponse(problems.error_body(error, Dialect.OTHER), error.status, sent)
