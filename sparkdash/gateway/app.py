"""The gateway as one application: which handler a request belongs to, and whether its caller may use it.

See DESIGN.md for the way of a request through the rooms.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import NamedTuple

from sparkdash.api.answers import GatewayHealth
from sparkdash.domain.engine import EngineState
from sparkdash.errors import AdmissionError, SparkdashError
from sparkdash.gateway.admission import access, audit, guard
from sparkdash.gateway.admission.access import READ, AccessControl
from sparkdash.gateway.apis import llama_swap, ollama, pages
from sparkdash.gateway.apis.models import model_list_handler
from sparkdash.gateway.apis.pages import serve_metrics
from sparkdash.gateway.apis.responses import RESPONSES, ResponseFiles, Responses
from sparkdash.gateway.control.app import serve_call
from sparkdash.gateway.control.routes import ControlCall
from sparkdash.gateway.deps import Deps
from sparkdash.gateway.http.channel import ClientGone
from sparkdash.gateway.http.exchange import Exchange, ParsedHead
from sparkdash.gateway.http.headers import HeaderList, profiles_since
from sparkdash.gateway.protocol import problems
from sparkdash.gateway.protocol.route import (
    METRICS,
    OLLAMA,
    Dialect,
    Route,
    find_route,
    is_llama_swap_command,
    is_plain,
    raw_route,
)
from sparkdash.gateway.relay import passthrough
from sparkdash.keyring import Scope as KeyScope
from sparkdash.limits import CONTROL_BODY_MIB, shown
from sparkdash.settings import Settings
from sparkdash.wire import RequestChannel


async def serve_raw(deps: Deps, exchange: Exchange) -> None:
    try:
        route = _route(deps, exchange)
    except SparkdashError as error:
        await exchange.refuse(error)
        return
    await passthrough.relay_request(deps, exchange, route)


def _route(deps: Deps, exchange: Exchange) -> Route:
    catalog = deps.catalog()
    # exact names only: the part after a slash may belong to the engine's path
    route = raw_route(exchange.raw_path, lambda name: catalog.exactly(name) is not None)
    if route is None or route.profile is None:
        path = shown(exchange.raw_path)
        raise problems.status_error(404, f"{path} is not an engine path for clients (/upstream/PROFILE/PATH)")
    if exchange.method == "POST" or exchange.channel.upgraded is not None:
        return route
    found = catalog.find(route.profile)
    if found.engine.is_remote:
        return route
    profile = found.name
    engine = deps.bus.snapshot.engines.get(profile)
    if engine is None or engine.state is not EngineState.READY:
        raise AdmissionError(
            f"{profile} is not loaded, and a {exchange.method} loads nothing.",
            code="not_loaded",
            status=404,
            hint="Start it with `sparkdash use`, or POST to it.",
        )
    return route


Handler = Callable[[Deps, Exchange], Awaitable[None]]


_HANDLERS: Mapping[str, Handler] = {
    **dict.fromkeys(OLLAMA, ollama.serve_ollama),
    METRICS: serve_metrics,
    llama_swap.RUNNING: llama_swap.serve_running,
}


class MatchedRoute(NamedTuple):
    """Handler of a request that the guard let in, and what the caller needs for it."""

    handler: Handler
    scope: KeyScope | None
    """Scope that the key needs; None: no key is needed."""
    counts: bool
    """Whether the request is work for an engine, within its key's limits."""


_JSON = [(b"content-type", b"application/json")]
_VARY = [(b"vary", b"Accept")]
"""Header of health answers: at the root a browser gets a page, a client of Ollama the words that it tests."""


class KnownHead:
    """Facts about one request head, found once and shared by all requests that repeat the head."""

    __slots__ = ("granted", "head", "route")

    def __init__(self, head: ParsedHead) -> None:
        self.head = head
        self.route: MatchedRoute | None = None
        """Set once the guard has let the head in."""
        self.granted: HeaderList = []
        """CORS headers of every answer to this head; set with `route`."""


class Gateway:
    """Application of our own server, which hands it its channels."""

    def __init__(self, deps: Deps) -> None:
        self._deps = deps
        self._origins = _origin_policy(deps.settings)
        self._access = AccessControl(
            deps.keys,
            beyond=deps.settings.beyond_loopback,
            used_today=deps.used_today,
            clock=deps.clock,
            monotonic=deps.monotonic,
        )
        folder = deps.responses
        self._responses = None if folder is None else Responses(ResponseFiles(folder, deps.settings.responses_mib))

    def serve(self, channel: RequestChannel) -> Awaitable[None]:
        """Admit the request and dispatch it to its handler, synchronously; return the handler's awaitable."""
        known = channel.head.memo
        if not isinstance(known, KnownHead):
            known = channel.head.memo = KnownHead(ParsedHead.of_wire(channel.head))
        exchange = Exchange(known.head, channel)
        try:
            route = known.route or self._let_in(known)
        except AdmissionError as error:
            return _refuse(exchange, error)
        if known.granted:
            exchange.granted = known.granted
        if route.scope is not None:
            try:
                if (key := self._access.key_of(known.head)) is not None:
                    self._access.admit(key, route.scope, counts=route.counts)
                    exchange.key = key
            except AdmissionError as error:
                return _refuse(exchange, error)
        return route.handler(self._deps, exchange)

    def _let_in(self, known: KnownHead) -> MatchedRoute:
        """Check the size of the head and the guard's rules. Raises AdmissionError when either refuses the request."""
        head = known.head
        guard.check_size(len(head.raw_path) + len(head.query), len(head.raw_headers))
        if head.via and (circle := profiles_since(head.via, self._deps.hop_id)):
            raise AdmissionError(
                f"The request came back to this gateway, over {shown(' → '.join(circle))}.",
                code="loop_detected",
                status=508,
                hint="Have the `url` of such a profile name the engine itself, and not a gateway that asks this one.",
            )
        known.granted = guard.check_page(head.headers, self._origins, path=head.path, unix=head.unix)
        known.route = route = self._route(head)
        return route

    def _route(self, head: ParsedHead) -> MatchedRoute:
        if head.method == "POST" and is_plain(head.raw_path):
            kept = self._responses if head.raw_path == RESPONSES else None
            if kept is None:
                relay = partial(passthrough.relay_request, route=find_route(head.raw_path))
                return MatchedRoute(relay, KeyScope.INFERENCE, counts=True)
            return MatchedRoute(kept.create, KeyScope.INFERENCE, counts=True)
        if guard.is_preflight(head.headers, head.method):
            return MatchedRoute(_answer_preflight, None, counts=False)
        if pages.wants_page(head):
            return MatchedRoute(pages.serve_page, None, counts=False)
        scope = access.scope_of(head.path)
        if scope is None:
            return MatchedRoute(_answer_alive, None, counts=False)
        reads = head.method in READ and b"sec-websocket-key" not in head.headers
        controls = scope in (KeyScope.CONTROL, KeyScope.METRICS)
        return MatchedRoute(self._handler(head), scope, counts=not (reads or controls))

    def _handler(self, head: ParsedHead) -> Handler:
        path = head.path
        if (handler := _HANDLERS.get(path.rstrip("/"))) is not None:
            return handler
        if path.startswith("/api/"):
            return self._serve_control
        if head.method == "GET" and is_llama_swap_command(path):
            return llama_swap.serve_command
        if path.startswith("/upstream/"):
            return serve_raw
        if self._responses is not None and path.startswith(f"{RESPONSES}/"):
            return self._responses.by_id
        return model_list_handler(head) or passthrough.relay_request

    async def _serve_control(self, deps: Deps, exchange: Exchange) -> None:
        head, key = exchange.head, exchange.key
        exchange.set_extra_headers(guard.NO_READERS)
        try:
            if key is None and not head.unix:
                await asyncio.to_thread(access.refuse_other_users, *exchange.ends())
            with deps.body_budget.share() as share:
                body = await exchange.body(CONTROL_BODY_MIB, share, deps.settings.body_s)
        except ClientGone:
            return
        except SparkdashError as error:
            await exchange.refuse(error)
            return
        call = ControlCall(deps, exchange, key)
        if deps.audit is not None and exchange.method not in READ:
            call.note = audit.note_of(exchange, body, deps.audit, deps.clock())
        await serve_call(call, body)


async def _answer_preflight(_deps: Deps, exchange: Exchange) -> None:
    await exchange.answer(204, b"", guard.preflight(exchange.head.headers))


async def _answer_alive(_deps: Deps, exchange: Exchange) -> None:
    if exchange.method not in READ:
        await exchange.refuse_method(exchange.head.path, READ)
        return
    if exchange.head.path == pages.ROOT and "json" not in (exchange.head.headers.get(b"accept") or ""):
        await exchange.answer(200, b"Ollama is running", [(b"content-type", b"text/plain; charset=utf-8"), *_VARY])
    else:
        await exchange.answer(200, GatewayHealth().model_dump_json().encode(), [*_JSON, *_VARY])


def _refuse(exchange: Exchange, error: AdmissionError) -> Awaitable[None]:
    """Refuse in the format of the API that the path belongs to."""
    if exchange.head.path.rstrip("/") in OLLAMA:
        return ollama.refuse_ollama(exchange, error)
    route = find_route(exchange.raw_path)
    return exchange.refuse(error, route.dialect if route else Dialect.OTHER)


def _origin_policy(settings: Settings) -> guard.OriginPolicy:
    beyond = settings.beyond_loopback
    box = socket.gethostname().lower()
    own = (box, f"{box}.local", *guard.FROM_CONTAINERS) if beyond else ()
    return guard.OriginPolicy((*own, *(name.lower() for name in settings.host_names)), beyond, settings.allowed_origins)
