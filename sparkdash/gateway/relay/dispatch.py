"""Dispatch: sends one request to the engine that was granted, in a form that this engine understands."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from urllib.parse import parse_qsl, urlencode

from sparkdash.domain.profile import EngineKind
from sparkdash.errors import AdmissionError, UpstreamError
from sparkdash.gateway.admission.access import key_check, offered_protocols
from sparkdash.gateway.http.channel import ClientStuck, FlowControl
from sparkdash.gateway.http.headers import VIA, HeaderPairs, headers_for_engine, via_header
from sparkdash.gateway.protocol import problems
from sparkdash.gateway.protocol.prepare import AS_IT_IS, AnswerChanges
from sparkdash.gateway.protocol.problems import refuses_instructions
from sparkdash.gateway.relay import fallbacks
from sparkdash.gateway.relay.admitted import (
    RequestContext,
    engine_url,
    headers_for_remote,
    is_reworded,
    refuse_unserved,
    remote_refusal,
    server_path,
    unserved_error,
)
from sparkdash.gateway.relay.reply import BAD_REQUEST, Reply, log_hint
from sparkdash.gateway.translate.requests import CHAT, TRANSLATED, as_chat
from sparkdash.gateway.translate.response import TranslatedResponse, answer_writer, needs_translation
from sparkdash.log import LOG
from sparkdash.supervisor import Lease
from sparkdash.units import MIB, duration
from sparkdash.upstream import EngineRequest, EngineResponse, UpgradedEngine, encode_headers

_JSON = ((b"content-type", b"application/json"),)
LEFT_OUT = b"x-sparkdash-left-out"
"""Header: what of a translated request the engine did not get."""
HANDSHAKE_S = 30.0
"""Seconds in which an engine answers the handshake."""
LOOK_S = 5.0
"""Seconds between two looks at a tunnel's silence, its bytes and its key."""
_PROTOCOLS = b"sec-websocket-protocol"
_HANDSHAKE = b"sec-websocket-"


def model_in_query(query: str) -> str | None:
    return dict(parse_qsl(query)).get("model")


def query_for_engine(query: str, model: str | None, names: tuple[str, ...]) -> str:
    if model is None or not names or model in names:
        return query
    return urlencode([(key, names[0] if key == "model" else value) for key, value in parse_qsl(query, True)])


def handshake_headers(given: HeaderPairs, passed: HeaderPairs) -> list[tuple[bytes, bytes]]:
    """Build the handshake for the engine: the client's own, without its key and its page's origin.

    `given`: all of the client's headers; `passed`: those that cross the gateway in any request.
    """
    headers = [pair for pair in passed if pair[0] != b"origin" and not pair[0].startswith(_HANDSHAKE)]
    headers += [(b"connection", b"Upgrade"), (b"upgrade", b"websocket")]
    for name, value in given:
        if name == _PROTOCOLS:
            value = ", ".join(offered_protocols(value.decode("latin-1"))).encode("latin-1")
        if value and name.startswith(_HANDSHAKE):
            headers.append((name, value))
    return headers


class Tunnel:
    """Bytes between a client and an engine that both have left HTTP; `cancel` ends the request with an error."""

    def __init__(
        self, context: RequestContext, engine: UpgradedEngine, cancel: Callable[[BaseException], object]
    ) -> None:
        self._context = context
        self._engine = engine
        self._cancel = cancel
        self._loop = asyncio.get_running_loop()
        self._over = asyncio.Event()
        self._passed_bytes = 0
        self._active_at = self._loop.time()
        self._is_key_good = key_check(context.exchange.key, context.deps.keys, context.deps.clock)
        self._timer = self._loop.call_later(LOOK_S, self._look)

    async def run(self) -> None:
        """Pass bytes until either side has closed."""
        exchange, engine, client = self._context.exchange, self._engine, self._context.exchange.channel.upgraded
        assert client is not None  # noqa: S101 - an engine is asked to switch for such a client alone
        exchange.on_disconnect(lambda _gone: self._over.set())
        try:
            limit_s = self._context.deps.settings.slow_client_s
            with FlowControl(exchange.channel, engine, limit_s, self._cancel) as push:
                engine.flow(client.pause, client.resume)
                engine.pour(self._counted(push), self._over.set)
                client.pour(self._counted(engine.write))
                await self._over.wait()
        finally:
            self._timer.cancel()
        exchange.end_tunnel()

    def _counted(self, write: Callable[[bytes], object]) -> Callable[[bytes], None]:
        def passed(data: bytes) -> None:
            self._passed_bytes += len(data)
            self._active_at = self._loop.time()
            write(data)

        return passed

    def _look(self) -> None:
        if error := self._violation():
            self._cancel(error)
        else:
            self._timer = self._loop.call_later(LOOK_S, self._look)

    def _violation(self) -> AdmissionError | None:
        idle_s, limit_mib = self._context.deps.settings.socket_idle_s, self._context.deps.settings.socket_limit_mib
        if self._loop.time() - self._active_at >= idle_s:
            words = f"Nothing passed through this WebSocket for {duration(idle_s)}."
            return AdmissionError(words, code="socket_idle", status=408)
        if self._passed_bytes > limit_mib * MIB:
            words = f"More than {limit_mib} MiB passed through this WebSocket."
            return AdmissionError(words, code="socket_limit", status=413)
        if not self._is_key_good():
            return AdmissionError("The key of this WebSocket was revoked or has expired.", code="key_ended", status=401)
        return None


UNKNOWN_PATH = frozenset({404, 405, 501})
"""Statuses of an engine without the protocol; its model was asked for by its own name, so it is not the cause."""

TEMPLATE_REFUSED = frozenset({400, 500})
"""Statuses of an engine whose model's template refused the messages."""
WORDS_LIMIT = 64 * 1024
"""Bytes of an error body that are read."""


def dispatch_request(
    context: RequestContext, lease: Lease, reply: Reply, on_client_stuck: Callable[[ClientStuck], object]
) -> Awaitable[None]:
    """Send the request to the engine of this lease, and hand its answer to `reply`.

    `on_client_stuck`: see `Reply.take`. The request can be dispatched again until the reply releases its body.

    Raises:
        UpstreamError: the engine did not answer, or broke off.
        HostError: a remote service refused.
        AdmissionError: the engine speaks only chat completions, and the request cannot be translated.
    """
    if lease.profile is not context.profile and lease.profile.engine is EngineKind.GENERIC:
        # `auto` may mean a server with other routes
        refuse_unserved(lease.profile, context.route)
    folds = bool(context.deps.system_first) and _incarnation(lease) in context.deps.system_first
    translates = context.route.path in TRANSLATED and _must_translate(context, lease)
    return _send(context, lease, reply, on_client_stuck, translates=translates, folds=folds)


async def _send(
    context: RequestContext,
    lease: Lease,
    reply: Reply,
    on_client_stuck: Callable[[ClientStuck], object],
    *,
    translates: bool | None,
    folds: bool,
) -> None:
    """Send the request, once more in another form if the engine's refusal asks for that.

    `translates`: it is sent as a chat; None: as it is, and once more as a chat if the engine does not know its path.
    `folds`: all of its instructions go into one system message.
    """
    sent_at = context.deps.monotonic()
    body, changes = _prepare(context, lease, folds=folds)
    if translates:
        opening, changes = _open_translated(context, lease, body), AS_IT_IS
    else:
        opening = context.deps.upstream.open(_engine_request(context, lease), body)
    del body  # the coroutine has it, until an answer comes
    with await opening as answer:
        if translates is None and answer.status in UNKNOWN_PATH:
            context.deps.chat_only.add((*_incarnation(lease), context.route.path))
            translates = True
        elif answer.status in TEMPLATE_REFUSED and not folds and await _needs_folding(context, lease, answer):
            folds = True
        else:
            if folds and answer.status < BAD_REQUEST:
                context.deps.system_first.add(_incarnation(lease))
            local = None if lease.profile.engine.is_remote else lease
            if local is None:
                await _raise_remote_refusal(context, lease, answer)
            elif answer.status in UNKNOWN_PATH and context.route.task is not None:
                await _raise_unserved(context, lease, answer)
            await reply.take(answer, sent_at, on_client_stuck, lease=local, changes=changes)
            return
    await _send(context, lease, reply, on_client_stuck, translates=translates, folds=folds)


async def _raise_unserved(context: RequestContext, lease: Lease, answer: EngineResponse) -> None:
    """Raise AdmissionError for a route that the engine does not have. A 404 about a model is the engine's own."""
    words = answer.words_of(await answer.read())
    if b"model" not in words.lower():
        raise unserved_error(context, lease.profile, words)


async def _needs_folding(context: RequestContext, lease: Lease, answer: EngineResponse) -> bool:
    """Whether the model's template refused the request for its system messages, and folding would change them."""
    if not context.route.generates or not refuses_instructions(answer.words_of(await answer.read())):
        return False
    return _prepare(context, lease, folds=True)[0] != _prepare(context, lease, folds=False)[0]


async def dispatch_websocket(
    context: RequestContext, lease: Lease, reply: Reply, cancel: Callable[[BaseException], object]
) -> None:
    """Ask the engine for a WebSocket, and pass its bytes or its refusal. Raises UpstreamError: it did not answer."""
    deps, local = context.deps, None if lease.profile.engine.is_remote else lease
    try:
        async with asyncio.timeout(HANDSHAKE_S) as limit:
            with await _open_websocket(context, lease) as answer:
                limit.reschedule(None)
                if answer.upgraded is not None:
                    reply.open_tunnel(answer)
                    await Tunnel(context, answer.upgraded, cancel).run()
                    reply.end_tunnel()
                    return
                if local is None:
                    await _raise_remote_refusal(context, lease, answer)
                await reply.take(answer, deps.monotonic(), cancel, lease=local)
    except TimeoutError:
        raise UpstreamError(
            f"{lease.profile.name} did not answer the WebSocket's handshake within {duration(HANDSHAKE_S)}.",
            code="engine_timeout",
            status=504,
            hint=log_hint(lease.profile.name),
        ) from None


def _open_websocket(context: RequestContext, lease: Lease) -> Awaitable[EngineResponse]:
    head, profile, path = context.exchange.head, lease.profile, server_path(lease.profile, context.route.path)
    if query := query_for_engine(head.query, context.peeked.model, lease.names):
        path = f"{path}?{query}"
    remote = profile.engine.is_remote
    passed = (headers_for_remote if remote else headers_for_engine)(head.raw_headers, _own_headers(context, lease))
    headers = encode_headers(handshake_headers(head.raw_headers, passed))
    url, called = engine_url(profile, lease.url, path), None if remote else profile.name
    return context.deps.upstream.open(EngineRequest("GET", url, headers, called), upgrades=True)


def _must_translate(context: RequestContext, lease: Lease) -> bool | None:
    """Whether the request must be translated; None: the engine's 404 will tell."""
    needed = needs_translation(lease.profile, lease.engine.version, context.route)
    if needed is None and (*_incarnation(lease), context.route.path) in context.deps.chat_only:
        return True
    return needed


async def _raise_remote_refusal(context: RequestContext, lease: Lease, answer: EngineResponse) -> None:
    """Raise HostError for an answer of a remote service that is reworded, or that a fallback may replace."""
    if is_reworded(answer.status, others=bool(fallbacks.fallback_names(context))):
        again = next((value.decode("latin-1") for name, value in answer.headers if name == b"retry-after"), None)
        raise remote_refusal(
            lease.profile, answer.status, answer.words_of(await answer.read(WORDS_LIMIT)), lease.headers, again
        )


def _prepare(context: RequestContext, lease: Lease, *, folds: bool) -> tuple[bytes, AnswerChanges]:
    return context.deps.preparer.prepare(
        context.body_share.body,
        context.peeked,
        context.route,
        lease.profile,
        lease.names,
        lease.engine.version,
        system_first=folds,
    )


def _engine_request(context: RequestContext, lease: Lease) -> EngineRequest:
    """Return the request but for its body, made once for all requests of that head to that engine."""
    head, memo, path = context.exchange.head, context.exchange.head.engine_memo, context.route.path
    if memo is None or memo[0] is not lease.profile or memo[1:4] != (lease.url, path, lease.headers):
        memo = head.engine_memo = lease.profile, lease.url, path, lease.headers, _request_of(context, lease)
    return memo[4]


def _request_of(context: RequestContext, lease: Lease) -> EngineRequest:
    """Make the request but for its body; a remote service reports errors under its own name."""
    head, profile, path = context.exchange.head, lease.profile, server_path(lease.profile, context.route.path)
    if head.query:
        path = f"{path}?{head.query}"
    own, remote = _own_headers(context, lease), profile.engine.is_remote
    if remote:
        passed: HeaderPairs = headers_for_remote(head.raw_headers, own)
    else:
        passed = headers_for_engine(head.raw_headers, own, head.connection)
    url, called = engine_url(profile, lease.url, path), None if remote else profile.name
    return EngineRequest(head.method, url, encode_headers(passed), called)


def _own_headers(context: RequestContext, lease: Lease) -> Mapping[str, str]:
    """Return the lease's headers, and for a server elsewhere the mark by which a request that comes back is known."""
    if not lease.profile.engine.is_external:
        return lease.headers
    via = via_header(context.exchange.head.via, context.deps.hop_id, lease.profile.name)
    return {**lease.headers, VIA: via}


async def _open_translated(context: RequestContext, lease: Lease, body: bytes) -> EngineResponse:
    deps, dialect, asked = context.deps, context.route.dialect, json.loads(body.decode("utf-8-sig"))
    chat = as_chat(context.route.path, asked)
    if chat.left_out:
        _name_left_out(context, lease, chat.left_out)
    headers = encode_headers(headers_for_engine(_JSON, _own_headers(context, lease)))
    called = None if lease.profile.engine.is_remote else lease.profile.name
    url = engine_url(lease.profile, lease.url, server_path(lease.profile, CHAT))
    answer = await deps.upstream.open(EngineRequest("POST", url, headers, called), problems.encode_json(chat.body))
    with ExitStack() as closing:
        closing.enter_context(answer)
        translated = TranslatedResponse(answer, dialect, answer_writer(dialect, asked, chat))
        if answer.status >= BAD_REQUEST:
            await translated.read_error()
        closing.pop_all()
        return translated


def _name_left_out(context: RequestContext, lease: Lease, left_out: Sequence[str]) -> None:
    """Tell the client by a header, and the owner once by the log, what of a request no chat carries."""
    words = ", ".join(dict.fromkeys(left_out))
    context.exchange.add_extra_header(LEFT_OUT, words.encode("ascii", "replace"))
    told = (lease.profile.name, context.route.path, words)
    if told not in context.deps.left_out:
        context.deps.left_out.add(told)
        LOG.warning("a chat does not carry all of a request", profile=told[0], route=told[1], left_out=words)


def _incarnation(lease: Lease) -> tuple[str, float | None]:
    """Identify the incarnation of an engine, of which something is remembered."""
    return lease.url, lease.engine.ready_at
