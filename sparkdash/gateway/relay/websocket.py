"""WebSockets between a client and an engine: `/v1/realtime`, and the engine's own under `/upstream/NAME/`.

Owns: the life of one WebSocket: its lease, the wait for it, which frames pass, and how it ends. Must not know how
engines start. `http/client_socket` is the client's end, `upstream/engine_socket` the engine's.
Rule 1: a true status while that is possible. After `hold_headers_s`, and at once for a web page, which cannot see a
status, the handshake is answered, pings keep the connection alive, and a failure is an error event and a close.
Rule 2: an engine that dies before it took over costs only time; afterwards its conversation is lost, and the client is
told so.
Rule 3: messages pass as they are, but for the model's name in `session.update`.
"""

from __future__ import annotations

import asyncio
import base64
import os
from contextlib import AbstractAsyncContextManager
from urllib.parse import parse_qsl, urlencode

import structlog

from sparkdash.domain.lease import RequestState
from sparkdash.errors import SparkdashError, UpstreamError
from sparkdash.gateway.deps import Deps
from sparkdash.gateway.http.client_socket import ClientSocket, check_handshake
from sparkdash.gateway.http.exchange import Exchange
from sparkdash.gateway.http.flow_control import ClientGone, ClientStuck
from sparkdash.gateway.http.headers import headers_for_client, headers_for_engine
from sparkdash.gateway.ports import LeasePort
from sparkdash.gateway.protocol import realtime
from sparkdash.gateway.protocol.counts import error_code
from sparkdash.gateway.protocol.peek import PeekedBody
from sparkdash.gateway.protocol.problems import client_status
from sparkdash.gateway.protocol.route import REALTIME, Route
from sparkdash.gateway.protocol.websocket import GOING_AWAY
from sparkdash.gateway.relay import keepalive, remote
from sparkdash.gateway.relay.admitted import admit_request, client_identity, row_profile
from sparkdash.gateway.relay.answer_errors import log_hint, lost_error, reworded_error
from sparkdash.gateway.relay.cancel_scope import CancelScope
from sparkdash.gateway.relay.fallbacks import RetryPlan
from sparkdash.gateway.relay.request_context import RequestContext
from sparkdash.gateway.relay.request_row import RequestRow
from sparkdash.gateway.relay.served_routes import server_path
from sparkdash.gateway.relay.socket_passage import SocketLimits, SocketPassage
from sparkdash.units import duration
from sparkdash.upstream import SWITCHED, EngineSocket, encode_headers

LOG = structlog.get_logger("sparkdash.gateway")
UPGRADE_S = 30.0
"""Seconds in which an engine answers the handshake."""
_MODEL = "model"
_OURS = b"sec-websocket-"
"""Prefix of headers that belong to the handshake with the client; the engine gets one of its own."""


async def relay_websocket(deps: Deps, exchange: Exchange, route: Route) -> None:
    """Serve one request for a WebSocket."""
    try:
        check_handshake(exchange)
        model = dict(parse_qsl(exchange.query)).get(_MODEL) if route.profile is None else None
        context = admit_request(deps, exchange, route, deps.body_budget.share(), PeekedBody(model, stream=True))
    except SparkdashError as error:
        await refuse_websocket(exchange, error)
        return
    await _SocketRelay(context).run()


async def refuse_websocket(exchange: Exchange, error: SparkdashError) -> None:
    """Refuse a request for a WebSocket: by a status, or for a web page by a close."""
    client = ClientSocket(exchange, lambda _reason: None)
    if not client.is_page:
        await exchange.refuse(error)
        return
    client.accept()
    client.fail(error, tells_event=True)
    await client.finish()


class _SocketRelay:
    """Relayed WebSocket, with its row and its cancel scope."""

    def __init__(self, context: RequestContext) -> None:
        self._context = context
        self._deps = deps = context.deps
        self._exchange = exchange = context.exchange
        self._is_realtime = context.route.path == REALTIME and context.route.profile is None
        self._scope = CancelScope()
        """Cancelled when the client leaves or a limit is reached, and by the box's owner."""
        self._client = ClientSocket(exchange, self._scope.cancel)
        self._keepalive: keepalive.KeepAlive | None = None
        self._lost: asyncio.Future[SparkdashError] | None = None
        """`lost` of the current lease."""
        self._row = RequestRow(
            deps,
            exchange.head.agent,
            exchange.key.name if exchange.key else None,
            row_profile(context),
            context.route.path,
            True,
        )
        self._granted_at = 0.0
        self._tap = realtime.RealtimeTap(lambda: self._row.streams(deps.monotonic() - self._granted_at))
        self._passage: SocketPassage | None = None
        """Set once an engine has taken over."""

    async def run(self) -> None:
        """Run the WebSocket to its end; its row ends with it."""
        cancel, client = self._scope.cancel, self._client
        try:
            with self._scope:
                self._exchange.on_disconnect(cancel)
                self._deps.running.begun(self._row.id, cancel)
                await self._attempt_all()
            self._row.ended(RequestState.DONE, self._tap, SWITCHED)
        except ClientStuck:
            self._row.ended(RequestState.GONE, self._tap, SWITCHED, "client_stuck")
        except ClientGone:
            self._row.ended(RequestState.GONE, self._tap, error="client_gone")
        except SparkdashError as error:
            LOG.info("a WebSocket failed", id=self._row.id, profile=self._row.profile, code=error.code)
            await self._fail(error)
        except Exception:  # the client gets an answer and the log a traceback
            LOG.exception("sparkdash failed on a WebSocket", id=self._row.id)
            await self._fail(SparkdashError("sparkdash itself failed on this WebSocket.", hint="Its log says more."))
        except BaseException:
            self._row.ended(RequestState.FAILED, error="gateway_stopped")
            if client.is_open and not self._is_mid_frame:
                client.close(GOING_AWAY, "the gateway stops")
            raise
        finally:
            if client.is_open:
                client.end()
            self._exchange.detach()
            self._deps.running.ended(self._row.id)

    async def _attempt_all(self) -> None:
        """Attempt the requested profile, once more where its engine died before it took over."""
        name, plan = self._context.name, None
        while True:
            try:
                await self._attempt(name)
            except SparkdashError as error:
                if self._passage is not None:
                    raise
                plan = plan or RetryPlan(self._context)
                name = plan.next_name(error)
                self._row.requeued()
            else:
                return

    async def _attempt(self, name: str) -> None:
        try:
            async with self._deps.supervisor.lease(
                name,
                request_id=self._row.id,
                on_wait=self._on_wait,
                batch=self._context.batch,
                task=self._context.route.task,
                client=client_identity(self._exchange),
                progress=self,
            ) as lease:
                await self._end_keepalive()
                self._row.granted(lease)
                self._granted_at = self._deps.monotonic()
                await self._use(lease)
        finally:
            await self._end_keepalive()

    async def _end_keepalive(self) -> None:
        if self._keepalive is not None:
            await self._keepalive.end()
            self._keepalive = None

    def _on_wait(self, position: int) -> None:
        """Note the place in the queue; begin to keep the client alive."""
        if self._row.waits(position) and self._keepalive is None:
            early = self._client.is_open or self._client.is_page
            delay = 0.0 if early else self._deps.settings.hold_headers_s
            self._keepalive = keepalive.KeepAlive(self._send_ping, delay, self._scope.cancel)

    async def _send_ping(self) -> None:
        self._client.accept()
        self._client.ping()

    async def _use(self, lease: LeasePort) -> None:
        """Join client and engine until one of them closes.

        Raises:
            UpstreamError: the engine died, or refused with an error of its own.
            EngineError: code `cut`, a person stopped the engine or a swap's drain was over.
        """
        self._lost = lease.lost
        self._lost.add_done_callback(self._on_lost)
        try:
            async with asyncio.timeout(UPGRADE_S) as limit, self._upgrade(lease) as engine:
                limit.reschedule(None)
                if engine.status == SWITCHED:
                    await self._join(lease, engine)
                else:
                    await self._refused(lease, engine)
        except TimeoutError:
            raise UpstreamError(
                f"{lease.profile.name} did not answer the WebSocket's handshake within {duration(UPGRADE_S)}.",
                code="engine_timeout",
                status=504,
                hint=log_hint(lease.profile.name),
            ) from None
        except asyncio.CancelledError:
            if why := self._scope.take_reason():
                raise why from None
            raise
        finally:
            self._lost.remove_done_callback(self._on_lost)
            self._lost = None

    def _on_lost(self, lost: asyncio.Future[SparkdashError]) -> None:
        if lost is self._lost:  # a scheduled callback cannot be removed
            self._scope.interrupt(lost_error(lost.result()))

    def _upgrade(self, lease: LeasePort) -> AbstractAsyncContextManager[EngineSocket]:
        head, path = self._exchange.head, server_path(lease.profile, self._context.route.path)
        if query := _query_for(head.query, self._context.peeked.model, lease.names):
            path = f"{path}?{query}"
        is_remote = remote.is_remote(lease.profile)
        if is_remote:
            url, passed = (
                remote.remote_url(lease.profile, lease.url, path),
                list(remote.headers_for_remote(head.raw_headers, lease.headers)),
            )
        else:
            url, passed = lease.url.rstrip("/") + path, headers_for_engine(head.raw_headers, b"", lease.headers)
        kept = [(name, value) for name, value in passed if not name.startswith(_OURS) and name != b"origin"]
        offered = ", ".join(self._client.offered).encode("latin-1")
        handshake = [
            (b"connection", b"Upgrade"),
            (b"upgrade", b"websocket"),
            (b"sec-websocket-version", b"13"),
            (b"sec-websocket-key", base64.b64encode(os.urandom(16))),
            *([(b"sec-websocket-protocol", offered)] if offered else []),
        ]
        called = None if is_remote else lease.profile.name
        return self._deps.upstream.upgrade(url, encode_headers([*kept, *handshake]), called)

    async def _refused(self, lease: LeasePort, engine: EngineSocket) -> None:
        """Pass on an engine's refusal of the handshake."""
        status, body = engine.status, engine.body
        if remote.is_remote(lease.profile):
            raise remote.remote_refusal(lease.profile, status, body, lease.headers, None)
        if self._client.is_open or self._client.is_page:
            raise reworded_error(status, body)
        passed = [pair for pair in headers_for_client(engine.headers, stream=False) if pair[0] != b"content-length"]
        self._row.ended(RequestState.FAILED, None, status, error_code(body) or "engine_error")
        await self._exchange.answer(status, body, passed)

    async def _join(self, lease: LeasePort, engine: EngineSocket) -> None:
        named = dict(engine.headers).get(b"sec-websocket-protocol", b"").decode("latin-1")
        self._client.accept(named if named in self._client.offered else None)
        renames = lease.names if self._is_realtime else ()
        passage = self._passage = SocketPassage(self._client, engine, self._tap, self._scope, renames)
        limits = SocketLimits(self._context, self._client, passage, self._scope)
        try:
            with self._exchange.flow(engine, self._deps.settings.slow_client_s, self._scope.cancel) as push:
                await passage.run(push)
        finally:
            limits.stop()

    @property
    def _is_mid_frame(self) -> bool:
        return self._passage is not None and self._passage.is_mid_frame

    @property
    def heard_at(self) -> float | None:
        """Time of the engine's last byte."""
        return None if self._passage is None else self._passage.heard_at

    @property
    def is_held_up(self) -> bool:
        """Whether the engine may be silent: always, as in a conversation nobody knows whose turn it is."""
        return True

    async def _fail(self, error: SparkdashError) -> None:
        """Tell the client of a failure: with its true status, or by an error event and a close."""
        self._row.ended(RequestState.FAILED, self._tap, client_status(error), error.code)
        client = self._client
        if not client.is_open:
            await refuse_websocket(self._exchange, error)
        elif not self._is_mid_frame:
            client.fail(error, tells_event=self._is_realtime)
            await client.finish()


def _query_for(query: str, model: str | None, names: tuple[str, ...]) -> str:
    """Return the query for the engine, with its own name of the model."""
    if model is None or not names or model in names:
        return query
    return urlencode([(key, names[0] if key == _MODEL else value) for key, value in parse_qsl(query, True)])
